"""Triton kernels as text: found in the candidate's files, checked against an allow-list, written anew.

This side imports neither torch nor Triton, and runs nothing of the candidate.
"""

from .options import check_options
from .reference import KernelReference
from .refusal import KernelRefusal
from .stores import stored
from .text import KernelText, kernel_text

__all__ = ["KernelReference", "KernelRefusal", "KernelText", "check_options", "kernel_text", "stored"]
