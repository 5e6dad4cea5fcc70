"""Tailtrace: lab."""
