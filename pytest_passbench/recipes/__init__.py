"""Training recipes for TRL (extra ``train``): short scripts to run as they are, or to copy and change."""
