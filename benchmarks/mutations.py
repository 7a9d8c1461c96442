"""Mutations: good inputs of every kind, written with one to three things wrong."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bad_values import EXPRESSIONS, LINES, NUMBERS, PATHS, SCALARS, VALUES, WORDS

from shared import bad_inputs, good_inputs

Write = Callable[[Path, random.Random], list[str]]
"""Writes an input's files into a folder and returns the command line that reads them."""

# Bytes and lines of any text


def _spoilt(data: bytes, rng: random.Random) -> bytes:
    """Return a text with one thing wrong in its bytes or lines."""
    lines, at = data.splitlines(keepends=True), rng.randrange(len(data) + 1)
    line = rng.randrange(len(lines)) if lines else 0
    often = (2, 3, 3000) if len(data) < 1_000_000 else (2, 3)  # a file may be one line of many megabytes
    choices: list[Callable[[], bytes]] = [
        lambda: data[:at],
        lambda: data[:at] + rng.randbytes(rng.choice((1, 3, 40))) + data[at:],
        lambda: data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :],
        lambda: data[:at] + b"\0" + data[at:],
        lambda: data[:at] + rng.choice((b"[", b"{", b"(", b"- ")) * rng.choice((3, 500, 100_000)) + data[at:],
        lambda: data[:at] + data[at:][::-1],
        lambda: b"\xef\xbb\xbf" + data,
        lambda: data.decode(errors="replace").encode(rng.choice(("utf-16", "utf-32", "utf-16-be"))),
        lambda: data.replace(b"\n", rng.choice((b"\r\n", b"\r", b"\n\n", b" ", b"\n\t", b"\x85", b"\x0c"))),
        lambda: b"".join(lines[:line] + lines[line + 1 :]),
        lambda: b"".join(lines[:line] + lines[line : line + 1] * rng.choice(often) + lines[line + 1 :]),
        lambda: b"".join(lines[:line] + lines[line:][::-1]),
        lambda: b"".join(rng.sample(lines, len(lines))),
        lambda: data * rng.choice((2, 50)),
        lambda: data + b" " * 10_000_000,
    ]
    return rng.choice(choices)()


def _with_values(text: str, rng: random.Random) -> str:
    """Return YAML or Python text with one value replaced."""
    lines = text.splitlines(keepends=True)
    at = rng.choice([n for n, line in enumerate(lines) if any(mark in line for mark in ":=[")])
    line = lines[at].rstrip("\n")
    if "- {" in line and rng.random() < 0.8:
        parts = line.split(", ")
        part = rng.randrange(len(parts))
        head = parts[part].partition(": ")[0]
        parts[part] = f"{head}: {rng.choice(SCALARS)}" + ("}" if part == len(parts) - 1 else "")
        line = ", ".join(parts)
    else:
        mark = next(mark for mark in (" = ", ": ", ":", "=", "[") if mark in line)
        line = line.partition(mark)[0] + mark + rng.choice(SCALARS)
    lines[at] = line + "\n"
    return "".join(lines)


def _source(rng: random.Random) -> str:
    """Return the source of a graph with one or two expressions that no good graph has."""
    body = [f"tmp_{n} = {rng.choice(EXPRESSIONS)}" for n in range(rng.choice((1, 1, 2)))]
    if rng.random() < 0.2:
        body.append(
            rng.choice(
                (
                    "in_0 += in_1",
                    "in_0[0] = in_1",
                    "del in_0",
                    "a, b = in_0",
                    "import os",
                    "x: int = 3",
                    "pass",
                    "return in_0",
                    "for i in in_0: pass",
                    "with in_0: pass",
                    "global x",
                    "in_0.data = 3",
                    "a = b = in_0",
                    "[] = in_0",
                )
            )
        )
    return "def forward(in_0, in_1):\n" + "".join(f"    {line}\n" for line in body) + "    return (tmp_0,)\n"


# Kinds of inputs


def task(folder: Path, rng: random.Random) -> list[str]:
    """Write a mutated task file."""
    text = good_inputs.task_text(_source(rng)) if rng.random() < 0.4 else good_inputs.task_text()
    if rng.random() < 0.6:
        for _ in range(rng.choice((1, 1, 2, 3))):
            text = _with_values(text, rng)
    data = text.encode("utf-8", "surrogatepass")
    if rng.random() < 0.3:
        data = _spoilt(data, rng)
    path = str(good_inputs.write_task(folder, data))
    if rng.random() < 0.1:
        return ["pytest", "--passbench", f"--candidate={good_inputs.write_candidate(folder)}", path]
    return ["tasks", rng.choice(("validate", "validate", "validate", "show", "list", "check")), path]


def published(folder: Path, rng: random.Random) -> list[str]:
    """Write a published sample with one or two of its files wrong."""
    path = good_inputs.write_sample(folder)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    for file in rng.sample(files, rng.choice((1, 1, 2))):
        _replace(file, rng)
    if rng.random() < 0.1:
        return ["pytest", "--passbench", f"--candidate={good_inputs.write_candidate(folder)}", str(path)]
    return [
        "tasks",
        rng.choice(("validate", "show", "list", "check")),
        str(path if rng.random() < 0.8 else path / "sub"),
    ]


def _replace(file: Path, rng: random.Random) -> None:
    """Give a file other contents, or replace it by something of another kind."""
    data = file.read_bytes()
    draw = rng.random()
    if draw < 0.25:
        _other_kind(file, rng)
    elif draw < 0.6 and data.strip():
        file.write_bytes(
            _with_values(data.decode(), rng).encode("utf-8", "surrogatepass")
            if b"=" in data or b":" in data
            else data * 2
        )
    elif file.suffix == ".py" and draw < 0.75:
        file.write_text(
            f"import torch\nclass A:\n\tname = {rng.choice(EXPRESSIONS)}\n\tshape = [{rng.choice(EXPRESSIONS)}]\n"
        )
    else:
        for _ in range(rng.choice((1, 2))):
            data = _spoilt(data, rng)[: 20 << 20]
        file.write_bytes(data)


def _closed_file(file: Path) -> None:
    file.write_text("x")
    file.chmod(0)


def _other_kind(file: Path, rng: random.Random) -> None:
    if file.is_dir():  # made by an earlier mutation
        return
    file.unlink()
    choices: list[Callable[[], object]] = [
        lambda: os.mkfifo(file),
        lambda: bad_inputs.sparse(file),
        file.mkdir,
        lambda: file.symlink_to(
            rng.choice(("/dev/zero", "/dev/null", file.name, "nowhere", "/", "/proc/self/mem", "/dev/tty"))
        ),
        lambda: _closed_file(file),
        lambda: file.mkdir(0),
        lambda: None,
    ]
    rng.choice(choices)()


def candidate(folder: Path, rng: random.Random) -> list[str]:
    """Write a candidate with strange things in its folder, or a strange manifest."""
    path = good_inputs.write_candidate(folder)
    for _ in range(rng.choice((1, 1, 2))):
        draw = rng.random()
        if draw < 0.4:
            manifest = path / good_inputs.MANIFEST
            if manifest.is_file():
                _manifest(manifest, rng)
        elif draw < 0.7:
            name = rng.choice(
                (
                    "fuse.py",
                    "x.py",
                    "data.bin",
                    "inner",
                    os.fsdecode(b"\xff.py"),
                    "a\nb.py",
                    "x" * 255,
                    "-",
                    good_inputs.MANIFEST,
                )
            )
            (path / name).touch()
            _other_kind(path / name, rng)
        else:
            file = path / "fuse.py"
            if file.is_file():
                file.write_bytes(_spoilt(file.read_bytes(), rng))
    if rng.random() < 0.3:
        path.rename(folder / rng.choice(("new\nline", "ü", os.fsdecode(b"\xff"), "[x]", "a b")))
        path = next(entry for entry in folder.iterdir() if entry.is_dir() and entry.name != "tasks")
    if rng.random() < 0.3:
        return [
            "verify",
            str(good_inputs.write_results(folder, good_inputs.results())),
            f"--candidate={path}",
            f"--tasks={good_inputs.write_task(folder)}",
        ]
    return ["pytest", "--passbench", f"--candidate={path}", str(good_inputs.write_task(folder))]


def _manifest(path: Path, rng: random.Random) -> None:
    draw = rng.random()
    if draw < 0.3:
        _other_kind(path, rng)
    elif draw < 0.7:
        path.write_text(
            json.dumps(rng.choice((rng.choice(VALUES), [rng.choice(VALUES)], ["fuse", rng.choice(VALUES)])))
        )
    else:
        path.write_bytes(_spoilt(path.read_bytes(), rng))


def results(folder: Path, rng: random.Random) -> list[str]:
    """Write a mutated results file."""
    data: Any = good_inputs.results()
    if rng.random() < 0.15:
        data = {
            "subgraphs": [{"status": "correct", "dtypes": ["float32"], "correct_from": [-6], "speedup": 1.5}],
            "b": 0.1,
        }
    for _ in range(rng.choice((0, 1, 1, 2))):
        _change(data, rng)
    text = json.dumps(data).encode()
    if rng.random() < 0.25:
        text = _spoilt(text, rng)[: 40 << 20]
    if rng.random() < 0.1:
        digits = rng.choice((b"NaN", b"Infinity", b"9" * 5000, b"1e999", b"-0", b"[" * 2000 + b"]" * 2000))
        text = text.replace(rng.choice((b"0.5", b"1.0", b"-6", b'"cand"', b"[]")), digits, 1)
    path = str(good_inputs.write_results(folder, text))
    if rng.random() < 0.05:
        Path(path).unlink()
        _other_kind(Path(path), rng) if not Path(path).touch() else None  # type: ignore[func-returns-value]
    command = rng.choice(("show", "verify", "merge"))
    if command == "merge":
        other = good_inputs.write_results(folder, good_inputs.results(), "other.json")
        return ["merge", str(folder / "out"), path, *([str(other)] if rng.random() < 0.5 else [])]
    tasks = [f"--tasks={good_inputs.write_task(folder)}"] if command == "verify" and rng.random() < 0.7 else []
    return [command, path, *tasks, *(["--json"] if command == "show" else [])]


def _change(data: Any, rng: random.Random) -> None:
    """Replace, remove, add or double something in a tree of JSON."""
    places: list[tuple[Any, Any]] = []
    _places(data, places)
    if not places:
        return
    holder, key = rng.choice(places)
    draw = rng.random()
    if draw < 0.7:
        holder[key] = rng.choice(VALUES)
    elif draw < 0.85:
        del holder[key]
    elif isinstance(holder, list):
        holder += holder[key : key + 1] * rng.choice((1, 100))
    else:
        holder[rng.choice(("x", "", "float", "schema", "\ud800", "a" * 10_000))] = rng.choice(VALUES)


def _places(value: Any, places: list[tuple[Any, Any]]) -> None:
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        places.append((value, key))
        _places(value[key], places)


# Command lines


def line(folder: Path, rng: random.Random) -> list[str]:
    """Write good files, and return a command line with bad arguments."""
    good_inputs.write_task(folder)
    good_inputs.write_results(folder, good_inputs.results())
    good_inputs.write_sample(folder)
    good_inputs.write_candidate(folder)
    os.mkfifo(folder / "pipe")
    bad_inputs.sparse(folder / "sparse")
    (folder / "closed").mkdir(0)
    command = rng.choice(list(LINES))
    words, pytests = command.split(), command.startswith("pytest")
    if pytests:
        words += ["--candidate=cand", "gelu-add.task.yaml"] if rng.random() < 0.8 else []
    for form in LINES[command]:
        if form in ("PATH", "BAD", "OUT") or rng.random() < 0.3:
            words += (
                _filled(form, rng, pytests).replace("-n=", "-n ", 1).split(" ", 1)
                if form.startswith("-n=")
                else [_filled(form, rng, pytests)]
            )
    if rng.random() < 0.1:
        words.insert(
            rng.randrange(len(words) + 1) if words and words[0] != "pytest" else len(words), rng.choice(WORDS)
        )
    return words or ["--help"]


def _filled(form: str, rng: random.Random, pytests: bool) -> str:
    if form == "PATH" and pytests:  # pytest itself fails on a folder that it may not read
        form = rng.choice([path for path in PATHS if path != "closed"])
    bad = [path for path in PATHS if path not in ("cand", "sample", ".", "/", "..")]
    outs = [path for path in PATHS if not path.startswith(("/", ".", "~")) and path]
    for name, words in (("NUMBER", NUMBERS), ("PATH", PATHS), ("WORD", WORDS), ("BAD", bad), ("OUT", outs)):
        while name in form:
            form = form.replace(name, rng.choice(words), 1)
    return form


KINDS: dict[str, tuple[Write, float]] = {
    "task": (task, 0.35),
    "published": (published, 0.15),
    "candidate": (candidate, 0.15),
    "results": (results, 0.2),
    "line": (line, 0.15),
}
"""Each kind of input, and its share."""
