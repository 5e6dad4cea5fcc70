"""What people and programs look at: the pages, the JSON API."""

from tailtrace.dashboard.app import create_app

__all__ = ["create_app"]
