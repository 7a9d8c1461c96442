"""The generator of fused kernels: a computation on tensors as one C++ function, launched once."""

from pytest_passbench.fusion.ir import Unsupported
from pytest_passbench.fusion.kernel import Kernel, kernel

__all__ = ["Kernel", "Unsupported", "kernel"]
