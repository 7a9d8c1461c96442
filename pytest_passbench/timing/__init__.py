"""Estimates of a ratio of times from rounds and pairs. Pure: neither torch nor pytest."""
