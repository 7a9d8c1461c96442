"""A journal keeps all records that are whole, however its file was damaged."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.record import Record
from pytest_passbench.run import journal

HEADER = {"seed": "00" * 32, "settings": {"tolerance": -5, "budget": float("inf")}}
RECORDS = [Record("task", f"s{index}", "passes", eager_error64=[float("nan")] * index) for index in range(4)]


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> bytes:
    """Return the bytes of a whole journal."""
    return write(tmp_path_factory.mktemp("run"), RECORDS).read_bytes()


def write(folder: Path, records: list[Record], worker: str = "") -> Path:
    one = journal.Journal(folder, HEADER, worker)
    for record in records:
        one.add(record)
    one.close()
    assert not one.fault
    return one.path


def names(folder: Path) -> list[str]:
    return [record.subgraph for record in journal.read(folder)[1]]


def test_what_was_added_is_there(tmp_path):
    write(tmp_path / "run", RECORDS)
    header, records, cut = journal.read(tmp_path / "run")
    assert header == HEADER
    assert [repr(record) for record in records] == [repr(record) for record in RECORDS]
    assert cut == 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_journal_cut_anywhere_keeps_its_whole_lines(tmp_path, written, data):
    size = data.draw(st.integers(0, len(written)))
    (tmp_path / journal.NAME).write_bytes(written[:size])
    lines = written[:size].count(b"\n")
    if not lines:
        with pytest.raises(UserError, match="is no journal of this version"):
            journal.read(tmp_path)
    else:
        assert names(tmp_path) == ["s0", "s1", "s2", "s3"][: lines - 1]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_byte_that_changed_costs_its_line_alone(tmp_path, written, data):
    header = written.index(b"\n") + 1
    place = data.draw(st.integers(header, len(written) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != written[place]))
    changed = bytearray(written)
    changed[place] = other
    (tmp_path / journal.NAME).write_bytes(changed)
    lost = written[header:place].count(b"\n")
    kept = [f"s{index}" for index in range(4) if index not in (lost, lost + (written[place] == 10))]
    assert names(tmp_path) == kept
    assert journal.read(tmp_path)[2] > 0


def test_workers_write_files_of_their_own(tmp_path):
    write(tmp_path, RECORDS[:1])
    write(tmp_path, RECORDS[1:3], "gw0")
    write(tmp_path, RECORDS[3:], "gw1")
    assert sorted(names(tmp_path)) == ["s0", "s1", "s2", "s3"]


def test_a_full_disk_is_told_of_and_ends_nothing(tmp_path):
    (tmp_path / journal.NAME).symlink_to("/dev/full")
    one = journal.Journal(tmp_path, HEADER)
    one.add(RECORDS[0])
    one.close()
    assert "No space left on device" in one.fault


def test_a_line_that_a_full_disk_cut_short_costs_no_other_line(tmp_path, monkeypatch):
    one = journal.Journal(tmp_path, HEADER)
    file = one._file

    class NearlyFull:
        fileno = file.fileno

        def write(self, line: bytes) -> int:
            return file.write(line[: len(line) // 2])

    monkeypatch.setattr(one, "_file", NearlyFull())
    one.add(RECORDS[0])
    assert "No space left on device" in one.fault
    monkeypatch.setattr(one, "_file", file)
    one.add(RECORDS[1])
    one.close()
    assert not one.fault
    assert names(tmp_path) == ["s1"]
    assert journal.read(tmp_path)[2] == 1


def test_a_folder_without_a_journal_is_refused(tmp_path):
    with pytest.raises(UserError, match="has no journal"):
        journal.read(tmp_path)


def test_what_is_no_regular_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / journal.NAME)
    with pytest.raises(UserError, match="is a FIFO"):
        journal.read(tmp_path)


def test_a_journal_that_was_written_to_be_hard_to_read_is_one_message(tmp_path):
    text = b'{"record": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    path = write(tmp_path, [])
    with path.open("ab") as file:
        file.write(hashlib.sha256(text).hexdigest().encode() + b" " + text + b"\n")
    with pytest.raises(UserError, match="lists and objects in each other"):
        journal.read(tmp_path)
