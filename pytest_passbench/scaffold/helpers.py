"""Python functions that a generated wrapper may need, as text. They lay data out; kernels compute."""

from __future__ import annotations

TEXTS = {
    "windows": '''\
def windows(x, kernel, stride, padding, dilation, fill=0.0):
    """Every window of x [batch, channels, ...] as a view [batch, channels, out..., kernel...]."""
    if padding == "same":
        widths = [(d * (k - 1) // 2, d * (k - 1) - d * (k - 1) // 2) for k, d in zip(kernel, dilation)]
    else:
        widths = [(p, p) for p in (padding if isinstance(padding, tuple) else (0,) * len(kernel))]
    sizes = [size + before + after for size, (before, after) in zip(x.shape[2:], widths)]
    wide = torch.full((*x.shape[:2], *sizes), fill, dtype=x.dtype, device=x.device)
    inner = wide
    for axis, (size, (before, _after)) in enumerate(zip(x.shape[2:], widths)):
        inner = inner.narrow(axis + 2, before, size)
    inner.copy_(x)
    out = [(size - d * (k - 1) - 1) // s + 1 for size, k, s, d in zip(sizes, kernel, stride, dilation)]
    steps = wide.stride()[2:]
    return wide.as_strided(
        (*x.shape[:2], *out, *kernel),
        (*wide.stride()[:2], *(a * s for a, s in zip(steps, stride)), *(a * d for a, d in zip(steps, dilation))),
    )
''',
    "batched": '''\
def batched(x, y):
    """x as batches of rows, and y as batches of columns, both dense and with the same batches."""
    batches = torch.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    y = y.transpose(-1, -2)
    return x.expand(*batches, *x.shape[-2:]).contiguous(), y.expand(*batches, *y.shape[-2:]).contiguous()
''',
    "moved": '''\
def moved(x):
    """x in a dense block of its own."""
    out = torch.empty(x.shape, dtype=x.dtype)
    sizes, strides = torch.tensor(x.shape), torch.tensor(x.stride())
    lib.moved(x.data_ptr(), out, sizes, strides, x.numel(), x.dim(), x.element_size())
    return out
''',
    "joined": '''\
def join(parts, dim):
    """The parts, one behind the other along a dimension."""
    shape, dim = list(parts[0].shape), dim % parts[0].dim()
    shape[dim] = sum(part.shape[dim] for part in parts)
    out = torch.empty(shape, dtype=parts[0].dtype)
    rows, start = parts[0].shape[:dim].numel(), 0
    for part in parts:
        part = part.contiguous()
        size = part.shape[dim:].numel() * part.element_size()
        lib.joined(part, out, rows, size, out.shape[dim:].numel() * part.element_size(), start)
        start += size
    return out
''',
    "padded": '''\
def padded(x, widths, fill):
    """x with `fill` around it; widths as torch.nn.functional.pad takes them."""
    sizes, inner = list(x.shape), []
    for axis in range(len(widths) // 2):
        before, after = widths[2 * axis : 2 * axis + 2]
        dim = x.dim() - 1 - axis
        sizes[dim] += before + after
        inner.append((dim, before, x.shape[dim]))
    out = torch.full(sizes, fill, dtype=x.dtype, device=x.device)
    place = out
    for dim, before, size in inner:
        place = place.narrow(dim, before, size)
    place.copy_(x)
    return out
''',
}
