"""A first pass for a task: the part of its graphs that is matched, a wrapper, and the generator's kernels."""
