"""Timed blocks, and accounts of how a run's time and cores were used."""
