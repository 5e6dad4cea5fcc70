"""Jobs: what runs in the background, each safe to run twice, late, or by several workers at once."""
