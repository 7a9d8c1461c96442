"""The text of Triton kernels: found in the candidate's files, checked against an allow-list, and written anew.

These modules import neither torch nor Triton. They run nothing of the candidate.
"""

from pytest_passbench.candidate.triton.reference import KernelReference
from pytest_passbench.candidate.triton.stores import stored
from pytest_passbench.candidate.triton.text import KernelText, check_options, kernel_text

__all__ = ["KernelReference", "KernelText", "check_options", "kernel_text", "stored"]
