"""Why requests waited: stage intervals, engine steps and counters in, causes with their evidence out."""
