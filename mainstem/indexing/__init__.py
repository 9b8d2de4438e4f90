"""The life of an index: planned, built beside writers, used, dropped."""
