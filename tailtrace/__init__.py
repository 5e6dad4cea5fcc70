"""Tailtrace: where an AI inference request waited, why it waited there, and what share of its time that was."""

from tailtrace.version import VERSION

__version__ = VERSION

__all__ = ["__version__"]
