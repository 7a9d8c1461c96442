"""Tolerance ladder, S(t), ES(t), AS. Pure: neither torch nor numpy nor pytest."""
