"""The store of compiled kernels: it keeps what is new, and forgets the oldest."""

from __future__ import annotations

import errno
import os
from pathlib import Path

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


def test_where_the_disk_takes_no_file_nothing_is_kept(tmp_path, monkeypatch):
    def full(*_arguments, **_options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path))

    kept = ContentStore(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", full)
        kept.put("key", b"library")
    assert kept.get("key") is None
    assert list(tmp_path.iterdir()) == []
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full)
        kept.put("key", b"library")
    kept.put("key", b"library")
    assert kept.get("key") == b"library"


def test_a_file_that_another_builder_renames_meanwhile_is_not_counted(tmp_path, monkeypatch):
    scandir = os.scandir

    def listed(folder):
        (tmp_path / "tmp").touch()
        entries = list(scandir(folder))
        (tmp_path / "tmp").unlink()
        return entries

    monkeypatch.setattr(store, "MAX_CACHE_BYTES", 40)
    (tmp_path / "old").write_bytes(bytes(100))
    os.utime(tmp_path / "old", (1, 1))
    monkeypatch.setattr(os, "scandir", listed)
    kept = ContentStore(tmp_path)
    kept.put("key", b"library")
    assert kept.get("key") == b"library"
    assert not (tmp_path / "old").exists()


def test_where_no_folder_can_be_made_nothing_is_kept(tmp_path):
    (tmp_path / "file").touch()
    store = ContentStore(tmp_path / "file" / "kernels")
    store.put("key", b"data")
    assert store.get("key") is None


def test_in_another_users_folder_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    store = ContentStore(tmp_path)
    store.put("key", b"data")
    assert store.get("key") is None
    assert list(tmp_path.iterdir()) == []
