"""Two streams, joined before the return: no launch plan has streams, and the refusal says so."""

import torch
import triton
import triton.language as tl

SIDE = torch.cuda.Stream()


def pattern(x, y, w, b):
    added = torch.nn.functional.gelu(x) + y
    return torch.nn.functional.layer_norm(added, (256,), w, b, 1e-05)


def replacement_args(x, y, w, b):
    return (x, y, w, b)


@triton.jit
def kernel(x_ptr, y_ptr, w_ptr, b_ptr, out_ptr, d, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < d
    x = tl.load(x_ptr + row * d + cols, mask=mask, other=0.0)
    y = tl.load(y_ptr + row * d + cols, mask=mask, other=0.0)
    s = 0.5 * x * (1.0 + tl.math.erf(x * 0.7071067811865476)) + y
    mean = tl.sum(tl.where(mask, s, 0.0), axis=0) / d
    centred = tl.where(mask, s - mean, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / d + 1e-5)
    w = tl.load(w_ptr + cols, mask=mask, other=0.0)
    b = tl.load(b_ptr + cols, mask=mask, other=0.0)
    tl.store(out_ptr + row * d + cols, centred * scale * w + b, mask=mask)


def wrapper(x, y, w, b):
    out = torch.empty_like(x)
    rows, d = x.shape
    main = torch.cuda.current_stream()
    SIDE.wait_stream(main)
    with torch.cuda.stream(SIDE):
        kernel[(rows,)](x, y, w, b, out, d, BLOCK=256)
    main.wait_stream(SIDE)
    return out


def replacement_func():
    return wrapper
