"""Training recipes for TRL, scripts to run or to copy, and a tiny model to try them with (docs/training.md)."""
