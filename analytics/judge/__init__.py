"""From spans to requests: where each one's time went."""

from tailtrace.analytics.judge.judge import JudgedBatch, judge_batch, judge_spans
from tailtrace.analytics.judge.judged import Derived, Judged, Segment

__all__ = ["Derived", "Judged", "JudgedBatch", "Segment", "judge_batch", "judge_spans"]
