"""The pages of a private mapping that a process has written to."""

from __future__ import annotations

import ctypes
import mmap
import os

from hypothesis import given
from hypothesis import strategies as st

from pytest_passbench.judge.arms.processes import PAGE, own_pages

PAGES = 32
BYTES = st.integers(0, 9 * PAGE)


@given(written=st.sets(st.integers(0, PAGES * PAGE - 1)), first=BYTES, size=BYTES.filter(bool))
def test_what_was_written_lies_in_the_ranges_and_what_was_only_read_does_not(written, first, size):
    fd = os.memfd_create("pages")
    os.ftruncate(fd, PAGES * PAGE)
    with mmap.mmap(fd, PAGES * PAGE, flags=mmap.MAP_PRIVATE) as pages:
        os.close(fd)
        sum(pages[::PAGE])
        for place in written:
            pages[place] = 1
        view = ctypes.c_char.from_buffer(pages)
        found = own_pages(os.getpid(), ctypes.addressof(view) + first, size)
        del view
    whole = {place // PAGE for place in written}
    assert found is not None
    assert [place for own in found for place in own] == [
        place for place in range(size) if (first + place) // PAGE in whole
    ]


def test_nothing_is_known_of_a_process_that_is_not_there():
    assert own_pages(1 << 22, 0, PAGE) is None
