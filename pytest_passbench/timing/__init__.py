"""Estimates of a ratio of times from rounds and pairs. The package imports neither torch nor pytest."""
