"""Candidates' folders, task files and published folders that a user may get wrong."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

from shared.bad_case import add, sparse, words
from shared.good_inputs import (
    HEAD,
    MANIFEST,
    SUBGRAPH,
    WEIGHTS,
    task_text,
    write_candidate,
    write_sample,
    write_task,
)

# Candidates' folders


def _candidate(change: Callable[[Path], object], says: str, name: str, code: int = 4) -> None:
    def write(folder: Path) -> list[str]:
        path = write_candidate(folder)
        change(path)
        return ["pytest", "--passbench", f"--candidate={path}", str(write_task(folder))]

    add(f"candidate: {name}", write, says, code)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(path.parent)  # a socket's path has at most 108 characters
        listener.bind(path.name)
        os.chdir(here)


def _device(path: Path) -> None:
    os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5))  # /dev/zero


def _closed(path: Path, text: str = "") -> None:
    path.write_text(text)
    path.chmod(0)


def _closed_folder(path: Path) -> None:
    path.mkdir()
    path.chmod(0)


def _deep(path: Path, depth: int = 1500) -> None:
    """Make folders in folders, until their path is longer than the system allows."""
    here = os.open(path, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("dd", dir_fd=here)
        inner = os.open("dd", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)


def _many(path: Path, count: int = 50_001) -> None:
    for number in range(count):
        (path / str(number)).touch()


def _links(path: Path) -> None:
    (path / "a").symlink_to("b")
    (path / "b").symlink_to("a")


def _manifest(content: bytes) -> Callable[[Path], object]:
    return lambda path: (path / MANIFEST).write_bytes(content)


def _fifo_for(name: str) -> Callable[[Path], object]:
    def change(path: Path) -> None:
        (path / name).unlink(missing_ok=True)
        os.mkfifo(path / name)

    return change


def _linked(name: str, target: str) -> Callable[[Path], object]:
    def change(path: Path) -> None:
        (path / name).unlink(missing_ok=True)
        (path / name).symlink_to(target)

    return change


_candidate(lambda p: os.mkfifo(p / "pipe"), "cand/pipe", "a FIFO")
_candidate(lambda p: _socket(p / "sock"), "cand/sock", "a socket")
if os.geteuid() == 0:
    _candidate(lambda p: _device(p / "zero"), "cand/zero", "a device")
_candidate(lambda p: sparse(p / "data.bin"), "cand/data.bin", "a sparse file of 2 GiB")
_candidate(lambda p: sparse(p / "fuse.py"), "cand/fuse.py", "a pass of 2 GiB")
_candidate(lambda p: sparse(p / MANIFEST), MANIFEST, "a manifest of 2 GiB")
_candidate(_manifest(json.dumps(["n" * 300]).encode()), MANIFEST, "a stem of 300 characters")
_candidate(lambda p: (p / os.fsdecode(b"\xff\xfe.py")).touch(), "fine", "a name that is not UTF-8", 0)
_candidate(lambda p: _closed(p / "x.py"), "cand/x.py", "an unreadable file")
_candidate(lambda p: _closed_folder(p / "inner"), "cand/inner", "an unreadable folder")
_candidate(lambda p: _closed(p / MANIFEST), MANIFEST, "an unreadable manifest")
_candidate(_links, "cand/", "a cycle of links")
_candidate(lambda p: (p / "self").symlink_to("."), "gelu-add", "a link to its own folder", code=0)
_candidate(_linked("fuse.py", "/dev/zero"), "cand/fuse.py", "a pass that links to /dev/zero")
_candidate(_linked(MANIFEST, "/dev/zero"), MANIFEST, "a manifest that links to /dev/zero")
_candidate(_fifo_for(MANIFEST), MANIFEST, "a FIFO for a manifest")
_candidate(_fifo_for("fuse.py"), "cand/fuse.py", "a FIFO for a pass")
_candidate(_deep, "cand/dd", "folders deeper than a path")
_candidate(_many, "cand", "50,001 files")
_candidate(_manifest(b'\xef\xbb\xbf["fuse"]'), "fine", "a manifest with a byte order mark", 0)
_candidate(_manifest('["fuse"]'.encode("utf-16")), "fine", "a manifest in UTF-16", 0)
_candidate(_manifest(b"\xff[" * 3), MANIFEST, "a manifest in no encoding")
_candidate(_manifest(b"[" * 100_000), MANIFEST, "a manifest of 100,000 brackets")
_candidate(_manifest(b"[" + b"9" * 5000 + b"]"), MANIFEST, "an integer of 5,000 digits in a manifest")
_candidate(_manifest(b'["\\ud800"]'), MANIFEST, "a lone surrogate in a manifest")
_candidate(_manifest(b'["a\\u0000"]'), MANIFEST, "NUL in a manifest")
_candidate(_manifest(b'["fuse", "fuse"]'), "fine", "a pass that is applied twice", 0)


# Task files


def _task(name: str, text: Callable[[], str | bytes], says: str = "gelu-add.task.yaml") -> None:
    for command in ("validate", "show"):
        add(
            f"task: {name}, {command}",
            lambda folder, command=command: ["tasks", command, str(write_task(folder, text()))],  # type: ignore[misc]
            says,
        )


def _graph(name: str, expression: str) -> None:
    source = f"def forward(in_0, in_1):\n    tmp_0 = {expression}\n    return (tmp_0,)\n"
    add(
        f"graph: {name}",
        lambda folder: ["tasks", "validate", str(write_task(folder, task_text(source)))],
        "gelu-add.task.yaml",
    )


def _input(**changes: str) -> str:
    text = SUBGRAPH
    for key, value in changes.items():
        start = text.index(f"{key}: ") + len(key) + 2
        end = text.index("]" if key == "shape" else ",", start) + (key == "shape")
        text = text[:start] + value + text[end:]
    return text


def _bomb(levels: int = 9, width: int = 10) -> str:
    lines = [f"meta: &a0 [{', '.join(['lol'] * width)}]"]
    lines += [f"  b{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, levels + 1)]
    return (
        SUBGRAPH
        + "  meta:\n    b0: "
        + lines[0].removeprefix("meta: ")
        + "\n"
        + "\n".join("  " + line for line in lines[1:])
        + "\n"
    )


_operators = "\n".join(f"    tmp_{n + 1} = tmp_{n} + in_1" for n in range(20_001))
_task(
    "100,000 brackets", lambda: task_text(subgraphs=SUBGRAPH + "  meta: {a: " + "[" * 100_000 + "]" * 100_000 + "}\n")
)
_task("100,000 brackets in the header", lambda: task_text(head=HEAD + "x: " + "[" * 100_000 + "\n"))
_task("100,000 mappings", lambda: task_text(subgraphs=SUBGRAPH + "  meta: " + "{a: " * 100_000 + "\n"))
_task("100,000 dashes", lambda: task_text(subgraphs="- " * 100_000))
_task("100,000 documents", lambda: task_text() + "---\na: 1\n" * 100_000)
_task("aliases of aliases", lambda: task_text(subgraphs=_bomb()))
_task("an alias of itself", lambda: task_text(subgraphs=SUBGRAPH + "  meta: &a {a: *a}\n"))
_task("an integer of 5,000 digits", lambda: task_text(subgraphs=_input(mean="9" * 5_000)))
_task("a shape of 5,000 digits", lambda: task_text(subgraphs=_input(shape="[" + "9" * 4_000 + "]")))
_task("a shape of 10^15 elements", lambda: task_text(subgraphs=_input(shape="[1000000, 1000000, 1000]")))
_task("a shape of 10,000 dimensions", lambda: task_text(subgraphs=_input(shape=str([1] * 10_000))))
_task("a mean of NaN", lambda: task_text(subgraphs=_input(mean=".nan")))
_task("an infinite mean", lambda: task_text(subgraphs=_input(mean=".inf")))
_task("an infinite std", lambda: task_text(subgraphs=_input(std="1e999")))
_task("a std of NaN", lambda: task_text(subgraphs=_input(std="nan")))
_task("a minimum of NaN", lambda: task_text(subgraphs=_input(min=".nan")))
_task(
    "an unknown dtype", lambda: task_text(subgraphs=SUBGRAPH.replace("dtype: float32,", "dtype: float99,")), "float99"
)
_task(
    "a subgraph's unknown dtype",
    lambda: task_text(subgraphs=SUBGRAPH.replace("dtype: float32\n", "dtype: float99\n")),
    "float99",
)
_task("a tag that runs code", lambda: task_text(head=HEAD + 'x: !!python/object/apply:os.system ["true"]\n'))
_task("UTF-16", lambda: task_text().encode("utf-16"))
_task("NUL", lambda: task_text().encode() + b"\0")
_task("40 MB", lambda: task_text() + "# " + "x" * 40_000_000)
_task("nothing", lambda: "")
_task("one mapping key twice", lambda: task_text(head=HEAD + "id: gelu-add\n"))
_task("a list for a key", lambda: task_text(head=HEAD + "? [a, b]\n: c\n"))
_task("a mapping for a key", lambda: task_text(head=HEAD + "? {a: b}\n: c\n"))
_graph("100,000 brackets", "(" * 100_000 + ")" * 100_000)
_graph("150 brackets", "(" * 150 + "in_0" + ")" * 150)
_graph("900 chained +", "in_0" + " + in_1" * 900)
_graph("20,000 chained +", "in_0" + " + in_1" * 20_000)
_graph("5,000 chained methods", "in_0" + ".relu()" * 5_000)
_graph("5,000 signs", "-" * 5_000 + "in_0")
_graph("9**9**9", "in_0 + 9**9**9**9")
_graph("a shift by 10^10", "in_0 + (1 << 10**10)")
_graph("a list of 10^10", "in_0.sum([0] * 10**10)")
_graph("a string of 10^10", "in_0.to('a' * 10**10)")
_graph("a number of 100,000 digits", "in_0 + " + "9" * 100_000)
_graph("multiplied 64 times", "in_0 * " + " * ".join(["9" * 4_000] * 64))
_graph("range(10**10)", "in_0.sum(list(range(10**10)))")
_graph("20,001 operators", "in_0\n    tmp_0 = in_0\n" + _operators.lstrip("\n") + "\n    tmp_0 = tmp_20001")


def _in_place_of_a_task(name: str, make: Callable[[Path], object]) -> None:
    def write(folder: Path) -> list[str]:
        path = folder / "gelu-add.task.yaml"
        make(path)
        return ["tasks", "validate", str(path)]

    add(f"task: {name}", write, "gelu-add.task.yaml")


_in_place_of_a_task("a FIFO", os.mkfifo)
_in_place_of_a_task("/dev/zero", lambda p: p.symlink_to("/dev/zero"))
_in_place_of_a_task("/dev/null", lambda p: p.symlink_to("/dev/null"))
_in_place_of_a_task("a broken link", lambda p: p.symlink_to("nowhere"))
_in_place_of_a_task("a link to itself", lambda p: p.symlink_to(p.name))
_in_place_of_a_task("a sparse file", sparse)
_in_place_of_a_task("a socket", _socket)
_in_place_of_a_task("an unreadable file", _closed)
add("task: a path of 5,000 characters", words("tasks", "show", "x" * 5_000), "File name too long")
add("task: NUL in a path", words("tasks", "validate", "a\0b"), "passbench: error")
add("task: /", words("tasks", "list", "/"), "passbench: error: /")


def _published(name: str, file: str, content: str | Callable[[Path], object], says: str = "", code: int = 1) -> None:
    def write(folder: Path) -> list[str]:
        path = write_sample(folder)
        member = path / file
        if isinstance(content, str):
            member.write_text(content)
        else:
            member.unlink()
            content(member)
        return ["tasks", "validate", str(path)]

    add(f"published: {name}", write, says or file, code)


for _name in ("graph_list.txt", "sub/model.py", "sub/weight_meta.py", "sub/graph_net.json"):
    _published(f"a FIFO for {_name}", _name, os.mkfifo)
    _published(f"/dev/zero for {_name}", _name, lambda p: p.symlink_to("/dev/zero"))
    _published(f"a sparse file for {_name}", _name, sparse)
_published("a link to / for graph_list.txt", "graph_list.txt", lambda p: p.symlink_to("/"))
_published("100,000 brackets of weights", "sub/weight_meta.py", "class A:\n\tname = " + "[" * 100_000 + "\n")
_published("900 chained + of weights", "sub/weight_meta.py", WEIGHTS.replace("[16, 32]", "[1" + " + 1" * 5_000 + "]"))
_published(
    "a size of many digits", "sub/weight_meta.py", WEIGHTS.replace("[16, 32]", f"[{' * '.join(['9' * 4000] * 64)}]")
)
_published("a shape of 10^15", "sub/weight_meta.py", WEIGHTS.replace("[16, 32]", "[1000000, 1000000, 1000]"))
_published("a shape that is a number", "sub/weight_meta.py", WEIGHTS.replace("[16, 32]", "5"))
_published("a mean of NaN", "sub/weight_meta.py", WEIGHTS.replace("mean = 0.0", "mean = float('nan')"), code=0)
_published("an infinite std", "sub/weight_meta.py", WEIGHTS.replace("std = 1.0", "std = 1e999"), code=0)
_published("dtype float99", "sub/weight_meta.py", WEIGHTS.replace("float32", "float99"), "float99")
_published(
    "a size that is no literal",
    "sub/input_tensor_constraints.py",
    "dynamic_dim_constraint_symbol2example_value = {S0: 'x'}\n",
)
_published(
    "a subgraph of dtype float99", "sub/graph_net.json", '{"passbench": {"dtype": "float99"}}', "unknown dtype"
)
_published("100,000 brackets of JSON", "sub/graph_net.json", '{"a": ' + "[" * 100_000)
_published("a number of 5,000 digits", "sub/graph_net.json", '{"a": ' + "9" * 5_000 + "}")
_published("a path of 5,000 characters", "graph_list.txt", "x" * 5_000, "File name too long")
_published("a name with NUL", "graph_list.txt", "a\0b\n")
_published("100,000 names", "graph_list.txt", "".join(f"s{n}\n" for n in range(100_000)))
