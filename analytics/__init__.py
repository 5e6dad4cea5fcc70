"""Tailtrace: analytics."""
