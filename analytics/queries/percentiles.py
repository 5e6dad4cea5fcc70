"""The percentiles of `statistics`, under the name that queries know them by."""

from tailtrace.analytics.statistics.percentiles import (
    BASE,
    Percentile,
    bucket_of,
    bucket_value_ns,
    interval_ranks,
    needed,
    percentile_of_buckets,
    rank,
)

__all__ = [
    "BASE",
    "Percentile",
    "bucket_of",
    "bucket_value_ns",
    "interval_ranks",
    "needed",
    "percentile_of_buckets",
    "rank",
]
