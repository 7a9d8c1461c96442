"""A candidate's directory, read as data."""

from __future__ import annotations

import json

import pytest

from pytest_passbench.candidate.layout import MANIFEST, Candidate
from pytest_passbench.core.errors import UserError

PASS = "def pattern(x): return x\ndef replacement_args(x): return (x,)\ndef replacement_func(): return None\n"


def pass_dir(folder, *stems, text=PASS):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).write_text(json.dumps(stems))
    for stem in stems:
        (folder / f"{stem}.py").write_text(text)
    return folder


def test_one_directory_for_every_task(tmp_path):
    candidate = Candidate.open(pass_dir(tmp_path / "mine", "b", "a"))
    found = candidate.passes_for("any-task")
    assert (candidate.name, found.stems, found.task_id, found.faults) == ("mine", ("b", "a"), None, ())
    candidate.check_tasks([])


def test_a_bare_pass_dir_is_named_after_its_parent(tmp_path):
    assert Candidate.open(pass_dir(tmp_path / "sample" / "pass_dir", "a")).name == "sample"
    inside = Candidate.open(tmp_path / "sample")
    assert inside.passes_for("t").path == tmp_path / "sample" / "pass_dir"


def test_one_directory_per_task_wins_over_the_common_one(tmp_path):
    root = pass_dir(tmp_path / "c", "common")
    pass_dir(root / "task-1", "own")
    pass_dir(root / "task-2" / "pass_dir", "published")
    pass_dir(root / "ab" / "cd" / "abcd1234" / "pass_dir", "nested")
    candidate = Candidate.open(root)
    stems = {task: candidate.passes_for(task).stems for task in ("task-1", "task-2", "abcd1234", "other")}
    assert stems == {"task-1": ("own",), "task-2": ("published",), "abcd1234": ("nested",), "other": ("common",)}
    assert [d.task_id for d in candidate.directories] == [None, "abcd1234", "task-1", "task-2"]
    candidate.check_tasks(["task-1", "task-2", "abcd1234"])
    with pytest.raises(UserError, match=r"task-2: no task is called 'task-2' \(did you mean task-1"):
        candidate.check_tasks(["task-1", "abcd1234"])


def test_without_a_common_directory_other_tasks_have_none(tmp_path):
    pass_dir(tmp_path / "c" / "task-1", "own")
    candidate = Candidate.open(tmp_path / "c")
    assert candidate.passes_for("task-1").stems == ("own",)
    assert candidate.passes_for("task-2") is None


def test_helpers_packages_caches_and_stray_files_are_tolerated(tmp_path):
    root = pass_dir(tmp_path / "c", "a")
    (root / "score.txt").write_text("0.4")
    (root / ".ignore").write_text("")
    (root / "helpers").mkdir()
    (root / "helpers" / "k.py").write_text("import torch")
    before = Candidate.open(root)
    (root / "__pycache__").mkdir()
    (root / "__pycache__" / "a.cpython-311.pyc").write_bytes(b"x")
    after = Candidate.open(root)
    assert before.content_hash == after.content_hash
    assert after.by_task == {}


def test_the_content_hash_is_of_names_and_contents(tmp_path):
    one, two = pass_dir(tmp_path / "one", "a", "b"), pass_dir(tmp_path / "two", "a", "b")
    first = Candidate.open(one).content_hash
    assert len(first) == 64
    assert Candidate.open(two).content_hash == first
    (two / "b.py").write_text(PASS + "# changed")
    changed = Candidate.open(two).content_hash
    (two / "b.py").write_text(PASS)
    (two / "helper.py").write_text("")
    assert len({first, changed, Candidate.open(two).content_hash}) == 3


def test_triton_is_seen_in_any_file(tmp_path):
    root = pass_dir(tmp_path / "c", "a")
    assert not Candidate.open(root).uses_triton
    (root / "kernels.py").write_text("def f():\n    import triton.language as tl\n")
    assert Candidate.open(root).uses_triton
    assert Candidate.open(root).passes_for("t").uses_triton


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("x = 1\ndef pattern(:\n", 2, "syntax error"),
        ("x = '\\d'\n" + PASS + "def f(:", 5, "syntax error"),
        ("def replacement_args(x): ...\ndef replacement_func(): ...\n", 1, "defines no pattern"),
        ("def pattern(x): ...\n", 1, "defines no replacement_args and no replacement_func"),
        ("a = '\0'", 1, ""),
    ],
)
def test_faults_of_a_pass_are_the_candidate_s(tmp_path, text, line, message):
    root = pass_dir(tmp_path / "c", "good", "bad")
    (root / "bad.py").write_text(text)
    [fault] = Candidate.open(root).passes_for("t").faults
    assert (fault.stem, fault.line) == ("bad", line)
    assert message in str(fault)
    assert str(fault).startswith(f"{root / 'bad.py'}:{line}: ")


@pytest.mark.parametrize(
    "text",
    [
        "from .shared import pattern, replacement_args, replacement_func",
        "from .shared import *",
        "if True:\n    def pattern(x): ...\nelse:\n    pattern = None\nreplacement_args = replacement_func = pattern",
        "try:\n    import a as pattern\nexcept ImportError: ...\nreplacement_args = replacement_func = 1",
    ],
)
def test_the_three_functions_may_be_bound_in_any_way(tmp_path, text):
    assert Candidate.open(pass_dir(tmp_path / "c", "a", text=text)).passes_for("t").faults == ()


def broken(tmp_path, kind):
    root = tmp_path / "c"
    if kind == "missing":
        return root
    if kind == "file":
        root.write_text("")
        return root
    pass_dir(root, "a")
    if kind == "empty":
        for file in root.iterdir():
            file.unlink()
    elif kind == "no manifest":
        (root / MANIFEST).unlink()
    elif kind == "no manifest of a task":
        (root / MANIFEST).unlink()
        (root / "a.py").unlink()
        pass_dir(root / "task-1", "a")
        (root / "task-2").mkdir()
        (root / "task-2" / "a.py").write_text(PASS)
    elif kind == "link out":
        (root / "b.py").symlink_to(tmp_path / "outside.py")
        (tmp_path / "outside.py").write_text("")
    elif kind == "broken link":
        (root / "b.py").symlink_to(root / "nowhere")
    else:
        (root / MANIFEST).write_text(kind)
    return root


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("missing", "does not exist"),
        ("file", "is a file"),
        ("empty", "is empty"),
        ("no manifest", f"no {MANIFEST}"),
        ("no manifest of a task", "task-2: no sorted"),
        ("link out", "leads out"),
        ("broken link", "broken symbolic link"),
        ("[1, 2", rf"{MANIFEST}:1: is not JSON"),
        ('{"a": 1}', "not a JSON list of strings"),
        ('["a", 1]', "not a JSON list of strings"),
        ('["a", "b"]', "there is no b.py"),
        ('["../a"]', "not a file stem"),
        ("\xff\xfe", "is not JSON"),
    ],
)
def test_what_a_user_got_wrong_is_one_message_with_the_file(tmp_path, kind, message):
    with pytest.raises(UserError, match=message) as caught:
        Candidate.open(broken(tmp_path, kind))
    assert str(tmp_path / "c") in str(caught.value)
    assert caught.value.remedy


def test_a_link_that_stays_inside_is_fine(tmp_path):
    root = pass_dir(tmp_path / "c", "a")
    (root / "b.py").symlink_to("a.py")
    assert Candidate.open(root).passes_for("t")
