"""Tailtrace: ingest."""
