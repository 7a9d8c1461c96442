"""Timed blocks, and the accounts of what a run's time and cores were used for."""
