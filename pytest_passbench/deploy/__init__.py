"""Judged passes in a user's own program: a backend of ``torch.compile``, and a pass for TorchInductor.

The passes are the user's own, or trusted: they run in this process, without a sandbox.
"""

from pytest_passbench.deploy.torch_compile import backend, inductor_pass

__all__ = ["backend", "inductor_pass"]
