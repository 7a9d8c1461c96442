"""The store of compiled kernels: it keeps what is new, and forgets the oldest."""

from __future__ import annotations

import os

from pytest_passbench.judge.builder import store
from pytest_passbench.judge.builder.store import ContentStore


def test_the_store_forgets_the_oldest_files_and_keeps_its_size(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "MAX_CACHE_BYTES", 40_000)
    kept = ContentStore(tmp_path)
    for number in range(100):
        kept.put(f"key{number}", os.urandom(1000))
        os.utime(tmp_path / f"key{number}", (number, number))
        assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 40_000 + 1032 * store.PUTS_PER_LOOK
    assert kept.get("key0") is None
    assert all(kept.get(f"key{number}") for number in range(80, 100))


def test_a_file_that_was_changed_is_not_given_out(tmp_path):
    kept = ContentStore(tmp_path)
    kept.put("key", b"library")
    assert kept.get("key") == b"library"
    (tmp_path / "key").write_bytes((tmp_path / "key").read_bytes() + b"!")
    assert kept.get("key") is None
