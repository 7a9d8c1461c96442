"""A candidate as data: its reader from outside, launch plans, kernels' texts."""
