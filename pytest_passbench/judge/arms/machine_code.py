"""The machine code in a process's memory, and which of it the judge did not put there."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pytest_passbench.judge.arms.processes import Gone

#: The files of the libraries of C and C++, of mathematics and of OpenMP.
_C_LIBRARIES = re.compile(r"(?:.*/)?lib(?:c|m|mvec|stdc\+\+|gcc_s|gomp)[-.][^/]*")


@dataclass(frozen=True)
class Mapping:
    """An executable mapping: addresses, and the file by device and inode (0 if there is none) and by path."""

    start: int
    end: int
    device: int
    inode: int
    path: str

    @property
    def installed(self) -> bool:
        """True if it is of a file that the judge finds at the same path."""
        try:
            status = Path(self.path).stat()
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == (self.device, self.inode)

    def is_c_library(self) -> bool:
        """Return True if it is of an installed library of C or C++, of mathematics or of OpenMP."""
        return _C_LIBRARIES.fullmatch(self.path) is not None


def mapped(pid: int) -> frozenset[Mapping]:
    """Return the executable mappings of a process. Raises Gone.

    Source for the lines: proc(5), ``/proc/pid/maps``.
    """
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
    except OSError as error:
        raise Gone(f"process {pid} ended") from error
    return frozenset(_mapping(*line.split(None, 5)) for line in lines if "x" in line.split(None, 2)[1])


def _mapping(addresses: str, _access: str, _offset: str, device: str, inode: str, path: str = "") -> Mapping:
    start, end = (int(address, 16) for address in addresses.split("-"))
    major, minor = (int(number, 16) for number in device.split(":"))
    return Mapping(start, end, os.makedev(major, minor), int(inode), path)


def added(pid: int, ancestor: int) -> frozenset[Mapping]:
    """Return what a process has mapped that the process it descends from has not, but for installed files.

    Those are compiled kernels, and what libraries generate. Raises Gone.
    """
    return frozenset(mapping for mapping in mapped(pid) - mapped(ancestor) if not mapping.installed)


def holds(mappings: Iterable[Mapping], address: int) -> bool:
    """Return True if the address is in one of these mappings."""
    return any(mapping.start <= address < mapping.end for mapping in mappings)
