"""What the fleet would tell of itself: spans, steps and counters as OTLP."""
