"""What no other pass has replaced: each region of operators that the generator has a kernel for is one kernel.

``scaled_dot_product_attention``, convolutions and matrix products stay eager's. The latter two have kernels in half
precision on a CPU without instructions for it, where eager takes 15 to 40 times as long as in float32.
"""

from pytest_passbench.fusion import regions

supported = regions.supported


def replacement_func():
    return regions.launch
