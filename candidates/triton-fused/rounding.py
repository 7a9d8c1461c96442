"""Rounding as eager's stores do, on a GPU and in Triton's interpreter alike."""

import triton
import triton.language as tl


@triton.jit
def rounded(x, kind: tl.constexpr):
    """float32 `x` as it is after a store as `kind`, ties to even.

    The interpreter cuts off the bits that bfloat16 has no room for, so they are rounded away here beforehand.
    """
    if kind == tl.bfloat16:
        bits = x.to(tl.uint32, bitcast=True)
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
        near = bits.to(tl.float32, bitcast=True)
        x = tl.where(x == x, near, x)  # NaN stays
    return x.to(kind).to(tl.float32)
