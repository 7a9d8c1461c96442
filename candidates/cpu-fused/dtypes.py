"""The check that the wrappers share: a kernel reads all of its operands as elements of one dtype."""


def require_one_dtype(name, *operands):
    """Raise ValueError unless the operands of a kernel are tensors of one dtype. None is no tensor."""
    dtypes = [getattr(operand, "dtype", operand) for operand in operands]
    if any(dtype != dtypes[0] for dtype in dtypes):
        raise ValueError(f"{name}: no kernel for operands of {', '.join(map(str, dtypes))}")
