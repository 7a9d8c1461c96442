"""The lowering of a run of calls to a wrapper and kernels that do the same, one loop after the other."""
