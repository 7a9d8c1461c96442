"""From a run of calls to the wrapper and the kernels that do the same, one loop after the other."""
