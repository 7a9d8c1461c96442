"""The audit's layers (docs/integrity.md), against cheating that the separation of processes does not rule out."""
