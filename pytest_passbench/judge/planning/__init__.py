"""A candidate as data: its reader, launch plans, kernels' texts."""
