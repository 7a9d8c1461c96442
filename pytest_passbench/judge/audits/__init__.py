"""The judge's audit layers (docs/integrity.md): what the separation of processes does not remove by itself."""
