"""The modules that a candidate imports to write kernels."""
