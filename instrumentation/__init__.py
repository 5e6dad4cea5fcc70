"""Tailtrace: instrumentation."""
