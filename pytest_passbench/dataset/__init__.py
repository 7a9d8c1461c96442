"""The data set: unique graphs of models that are built from configurations."""

TRAIN, VALIDATION, TEST = SPLITS = ("train", "validation", "test")
KINDS = ("whole", "fusible", "anchored", "typical", "single")
"""How a graph was cut from a model: all of it; a run that fuses into no more kernels than its first operator; a run
around a heavy operator; a frequent sequence of operators; one operator."""
