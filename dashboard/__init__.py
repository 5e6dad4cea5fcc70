"""Tailtrace: dashboard."""
