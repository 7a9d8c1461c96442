"""A candidate's directory, read as data."""

from __future__ import annotations

import json
import os

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
    assert candidate.for_no_task([]) == []


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
    assert candidate.for_no_task(["task-1", "task-2", "abcd1234"]) == []
    (error,) = candidate.for_no_task(["task-1", "abcd1234"])
    assert str(error).startswith(f"{root}/task-2: no task is called 'task-2' (did you mean task-1?")


def test_two_folders_of_one_task_are_named(tmp_path):
    root = tmp_path / "c"
    first = pass_dir(root / "a" / "task-1", "own")
    (root / "linked").mkdir()
    (root / "linked" / "task-1").symlink_to(first)
    assert Candidate.open(root).passes_for("task-1").stems == ("own",)
    second = pass_dir(root / "b" / "task-1", "own")
    with pytest.raises(UserError) as refusal:
        Candidate.open(root)
    assert f"{first} and {second} are both for the task task-1" in str(refusal.value)


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
    assert fault.line == line
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
    if kind == "FIFO":
        os.mkfifo(root)
        return root
    pass_dir(root, "a")
    if kind == "empty":
        for file in root.iterdir():
            file.unlink()
    elif kind == "no manifest":
        (root / MANIFEST).unlink()
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
        ("FIFO", "is a FIFO"),
        ("empty", "is empty"),
        ("no manifest", f"no {MANIFEST}"),
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


def test_a_name_in_the_manifest_without_a_file_proposes_the_file_of_a_similar_name(tmp_path):
    folder = tmp_path / "mine"
    pass_dir(folder, "batch_norm_silu")
    for name, remedy in (
        ("batch_norm_sillu", "did you mean batch_norm_silu? else add the file, or take the name out"),
        ("other", "add the file, or take the name out"),
    ):
        (folder / MANIFEST).write_text(json.dumps([name]))
        with pytest.raises(UserError) as caught:
            Candidate.open(folder)
        said = f"{folder}/{MANIFEST}: names {name!r}, but there is no {name}.py beside it ({remedy})"
        assert str(caught.value) == said


def without_manifest(folder):
    (folder / MANIFEST).unlink()


def a_link_out(folder):
    (folder / "model.bin").symlink_to("/etc/hostname")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (without_manifest, f"/pass_dir: no {MANIFEST} here (write"),
        (lambda folder: (folder / MANIFEST).write_text("[1, 2"), f"/pass_dir/{MANIFEST}:1: is not JSON"),
        (lambda folder: (folder / "a.py").unlink(), f"/pass_dir/{MANIFEST}: names 'a', but there is no a.py"),
        (a_link_out, "/pass_dir/model.bin: a symbolic link that leads out of the candidate"),
    ],
    ids=["no-manifest", "no-json", "no-file", "link"],
)
def test_a_mistake_in_a_task_s_own_directory_costs_this_task_alone(tmp_path, spoil, said):
    """The candidate has the published layout: a run of many tasks, with links beside the pass directories."""
    root = tmp_path / "run"
    for task in ("aa11", "bb22"):
        folder = root / "fusible_subgraphs" / task[:2] / task[2:] / task
        pass_dir(folder / "pass_dir", "a")
        (folder / "graphs").symlink_to("/usr/share")
        (folder / "graph_net_bench").symlink_to("/nowhere")
        (folder / "entry.sh").symlink_to("/etc/hostname")
    hashes = Candidate.open(root).content_hash
    spoil(root / "fusible_subgraphs/aa/11/aa11/pass_dir")
    candidate = Candidate.open(root)
    assert candidate.passes_for("bb22") == Candidate.open(root).by_task["bb22"]
    assert candidate.passes_for("bb22").problem == ""
    assert said in candidate.passes_for("aa11").problem
    assert len({hashes, candidate.content_hash}) == (1 if spoil is a_link_out else 2)


def test_a_link_that_stays_inside_is_fine(tmp_path):
    root = pass_dir(tmp_path / "c", "a")
    (root / "b.py").symlink_to("a.py")
    assert Candidate.open(root).passes_for("t")


def test_a_list_of_passes_that_is_not_json_is_shown_how_it_is_written(tmp_path):
    with pytest.raises(UserError) as caught:
        Candidate.open(broken(tmp_path, "[1, 2"))
    assert caught.value.remedy == 'write for example ["fuse_gelu", "fuse_add"]'
