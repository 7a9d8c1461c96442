"""Candidates' C++ kernels, compiled on the judge's side: screened, built in a sandbox of their own, and checked."""
