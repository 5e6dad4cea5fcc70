"""From spans to requests: where each one's time went."""

from tailtrace.analytics.judge.judged import Derived, Judged, Segment

__all__ = ["Derived", "Judged", "Segment"]
