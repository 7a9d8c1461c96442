"""Kernels of candidates, compiled on the judge's side: screened, compiled in a sandbox of their own, and checked."""
