"""The folder in which readers find a candidate's files: one sandbox serves candidate after candidate."""

from __future__ import annotations

import pytest

from pytest_passbench.candidate.layout import Candidate
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.settings import Settings
from pytest_passbench.suite.taskfile import read_task

LOOKS = """
from pathlib import Path

found = [str(path) for place in ("/tmp", "/dev/shm", Path(__file__).parent) for path in Path(place).rglob("*")]
print("found:", *sorted(found))
"""
LEAVES = """
from pathlib import Path

for place in ("/tmp", "/dev/shm", Path(__file__).parent):
    deeper = Path(place, "left", "behind")
    deeper.mkdir(parents=True)
    (deeper / "note").write_text("for the next one")
    (deeper / "link").symlink_to("note")
"""
STATES = """
import os

for place in ("/tmp", "/dev/shm"):
    print("mode:", oct(os.stat(place).st_mode), os.access(place, os.W_OK), os.listxattr(place))
"""
CHANGES = """
import contextlib
import os

for place in ("/tmp", "/dev/shm"):
    with contextlib.suppress(OSError):  # older kernels have none of a user's there
        os.setxattr(place, "user.note", b"for the next one")
    os.chmod(place, 0o555)
"""
CLOSES = """
import os

os.makedirs("/tmp/closed/folder")
os.chmod("/tmp/closed", 0)
"""


def output(bench, head, gelu_add_pass, **helpers):
    bench.candidate({"p": head + gelu_add_pass}, **helpers)
    (record,) = bench.judge().values()
    assert record.arm.status == "ran", record.arm.message
    return record.arm.output


@pytest.mark.bubblewrap
@pytest.mark.parametrize(
    ("looks", "leaves", "shown"), [(LOOKS, LEAVES, "found:"), (STATES, CHANGES, "mode:")], ids=["files", "modes"]
)
def test_nothing_that_a_candidate_leaves_is_there_for_the_next(bench, gelu_add_pass, looks, leaves, shown):
    bench.task()
    before = output(bench, looks, gelu_add_pass)
    output(bench, leaves, gelu_add_pass)
    assert shown in before
    assert output(bench, looks, gelu_add_pass) == before


@pytest.mark.bubblewrap
def test_a_sandbox_that_cannot_be_cleaned_is_replaced(bench, gelu_add_pass):
    bench.task()
    output(bench, CLOSES, gelu_add_pass)
    assert "closed" not in output(bench, LOOKS, gelu_add_pass)


def test_files_links_and_folders_of_a_candidate_are_there(bench, gelu_add_pass):
    bench.task()
    root = bench.candidate({"p": "from pass_dir import constants\nprint(constants.TEXT)\n" + gelu_add_pass})
    (root / "data").mkdir()
    (root / "data" / "Grüße.txt").write_text("read from a file")
    (root / "also").symlink_to("data")
    code = "from pathlib import Path\nTEXT = Path(__file__).with_name('also').joinpath('Grüße.txt').read_text()\n"
    (root / "constants.py").write_text(code)
    (record,) = bench.judge().values()
    assert (record.arm.status, record.arm.output.strip()) == ("ran", "read from a file")


def test_a_candidate_that_is_rewritten_at_its_place_is_read_anew(bench, gelu_add_pass):
    bench.task()
    assert output(bench, "print('one')\n", gelu_add_pass).strip() == "one"
    assert output(bench, "print('two')\n", gelu_add_pass).strip() == "two"


def test_where_a_link_to_a_folder_leads_and_an_empty_folder_make_another_candidate(bench, gelu_add_pass):
    root = bench.candidate({"p": gelu_add_pass})
    hashes = [Candidate.open(root).content_hash]
    for name in ("one", "two"):
        (root / name).mkdir()
        hashes.append(Candidate.open(root).content_hash)
    for name in ("one", "two"):
        (root / "link").unlink(missing_ok=True)
        (root / "link").symlink_to(name)
        hashes.append(Candidate.open(root).content_hash)
    assert len(set(hashes)) == len(hashes)


def test_a_candidate_that_changes_while_it_is_judged_is_named(bench, judges, gelu_add_pass):
    task = read_task(bench.task())
    candidate = Candidate.open(bench.candidate({"p": gelu_add_pass}))
    assert candidate.content_hash
    (candidate.path / "p.py").write_text("# rewritten\n" + gelu_add_pass)
    with pytest.raises(UserError, match=r"cand: was changed while it was being judged \(change no file"):
        list(judges.session(Settings(pipeline="direct", audit="off")).judge(task, candidate))
