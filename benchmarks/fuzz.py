"""Bad inputs of every kind: what passbench makes of them, and at what cost.

    python benchmarks/fuzz.py                                # 2,000 mutated inputs, and all named cases
    python benchmarks/fuzz.py --inputs 200 --seed 7          # the same 200 every time
    python benchmarks/fuzz.py --only results --show          # one kind, with every input that failed
    python benchmarks/fuzz.py --cases --json cases.json      # the named cases of tests/badinput.py alone

Each input is a command line and the files that it names: tests/badinput.py writes good ones, and one to three
mutations make them bad. It runs in a forked child with 1 GiB of memory and 5 s (tests/fuzzing.py). Exits with 1 if
any child was stopped, crashed, printed a traceback, or a message of more than 20 lines.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
import badinput
import fuzzing
from fuzzing import Outcome
from tabulate import tabulate

Write = Callable[[Path, random.Random], list[str]]
VERDICTS = ("fine", "message", "traceback", "hang", "too large", "too long", "crash")

SCALARS = (
    "null",
    "~",
    "[]",
    "{}",
    "''",
    "0",
    "-1",
    "1e999",
    ".nan",
    ".inf",
    "-.inf",
    "nan",
    "inf",
    "yes",
    "2024-01-01",
    "0x7f",
    "*nobody",
    "&a [*a]",
    "<<",
    "? x",
    "- - - -",
    "!!python/name:os.system",
    "!!binary x",
    "!!set {a}",
    "|",
    ">",
    "%TAG",
    "float99",
    "float8_e4m3fn",
    "complex64",
    "bool",
    "int64",
    "'\\0'",
    '"\\ud800"',
    '"\\0"',
    "a: b: c",
    "[1, 2",
    "{a: }",
    "1_000",
    "1:30",
    "9" * 30,
    "9" * 5000,
    "-" + "9" * 400,
    "[" * 300,
    "[" * 50_000,
    "{a: " * 2000,
    "x" * 100_000,
    "é\u202e",
    "2 ** 64",
    "[1000000, 1000000, 1000]",
    "[0]",
    "[-1]",
    "[1.5]",
    "[[1]]",
    "[9999999999999999999]",
    "[2147483648, 2147483648, 4]",
)
EXPRESSIONS = (
    "9**9**9**9",
    "1 << 10**9",
    "'a' * 10**10",
    "[0] * 10**10",
    "(" * 300 + "1" + ")" * 300,
    "in_0" + " + 1" * 2000,
    "-" * 3000 + "1",
    "in_0" + ".T" * 3000,
    "in_0" + "[0]" * 3000,
    "lambda: 0",
    "[x for x in in_0]",
    "f'{in_0}'",
    "yield",
    "await x",
    "in_0 if in_0 else in_1",
    "in_0 and in_1",
    "(y := in_0)",
    "*in_0",
    "torch.zeros(10**15)",
    "torch.arange(10**11)",
    "in_0.repeat(10**9)",
    "in_0.expand(10**9, 16, 32).contiguous()",
    "torch.nonzero(in_0)",
    "torch.nonzero(in_0).repeat(10**7)",
    "__import__('os').system('true')",
    "open('/dev/zero').read()",
    "torch.load('x')",
    "in_0.__class__",
    "in_0.__reduce_ex__(2)",
    "torch.ops.aten.add",
    "torch.ops.aten.add.Nothing(in_0)",
    "torch.ops.aten",
    "torch.nn.functional.linear()",
    "torch.finfo(in_0)",
    "torch.finfo('x').max",
    "slice()",
    "int('9' * 5000)",
    "int('9' * 10**9)",
    "float('x')",
    "complex(1, in_0)",
    "list(range(10**10))",
    "range(3)",
    "max()",
    "in_0[::-1]",
    "in_0[10**30]",
    "in_0[None, ..., 'a']",
    "in_0 @ in_1",
    "in_0 < in_1 < in_0",
    "1 / 0",
    "1 % 0",
    "1 // 0",
    "0 ** -1",
    "2.0 ** 10**5",
    "'\\ud800'",
    "b'x'",
    "...",
    "nan",
    "device(1, 2, 3)",
    "torch.device('moon')",
    "in_0.to('moon')",
    "in_0.view(-1, -1)",
    "in_9",
    "{1: 2}",
    "{**in_0}",
    "torch.cat([in_0] * 2)",
    "(1).real",
    "torch.nn.functional.interpolate(in_0, 10**9)",
    "torch.nn.functional.pad(in_0, (0, 10**12))",
    "torch.nn.functional.one_hot(in_0.long(), 10**12)",
    "torch.randn(10**9)",
    "torch.tensor([[1], [2, 3]])",
    "math.factorial(10**9)",
    "math.comb(10**9, 5)",
    "pow(2, 10**9)",
    "math.pow(10, 400)",
    "math.exp(1000)",
    "math.sqrt(-1)",
    "round(1e400)",
    "int(inf)",
    "sum([1, 'a'])",
    "getattr(in_0, 'grad_fn')",
)
VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    5,
    99,
    -11,
    -(10**9),
    10**400,
    1.5,
    -1e308,
    "",
    "nan",
    "WOW",
    "a\0b",
    "\ud800",
    "x" * 100_000,
    "../..",
    "/dev/zero",
    [],
    [5],
    [[]],
    [None],
    [1] * 10_000,
    {},
    {"float": "nan"},
    {"float": "inf"},
    {"float": "x"},
    {"a": {"a": {"a": 1}}},
    {"": 1},
    "\x1b[31m",
    "<b>|`",
    "9" * 5000,
)
NUMBERS = (
    "0",
    "-1",
    "1",
    "nan",
    "inf",
    "-inf",
    "1e999",
    "1e-999",
    "1.5",
    "",
    " ",
    "x",
    "²",
    "٣",
    "9" * 30,
    "9" * 5000,
    "0x10",
    "1_0",
    "+3",
    "1e9",
)
PATHS = (
    "",
    ".",
    "..",
    "/",
    "/dev/null",
    "/dev/zero",
    "/proc/self/mem",
    "/nowhere",
    "x" * 300,
    "x/" * 3000,
    "a\0b",
    "\udcff",
    "~",
    "*",
    "-",
    "--",
    "::",
    "a::b",
    "gelu-add.task.yaml",
    "results.json",
    "cand",
    "sample",
    "pipe",
    "sparse",
    "é.task.yaml",
    "closed",
)


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
    """Return a graph with one or two expressions of another kind."""
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
    text = badinput.task_text(_source(rng)) if rng.random() < 0.4 else badinput.task_text()
    if rng.random() < 0.6:
        for _ in range(rng.choice((1, 1, 2, 3))):
            text = _with_values(text, rng)
    data = text.encode("utf-8", "surrogatepass")
    if rng.random() < 0.3:
        data = _spoilt(data, rng)
    path = str(badinput.write_task(folder, data))
    if rng.random() < 0.1:
        return ["pytest", "--passbench", f"--candidate={badinput.write_candidate(folder)}", path]
    return ["tasks", rng.choice(("validate", "validate", "validate", "show", "list", "check")), path]


def published(folder: Path, rng: random.Random) -> list[str]:
    """Write a published sample with one or two of its files wrong."""
    path = badinput.write_sample(folder)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    for file in rng.sample(files, rng.choice((1, 1, 2))):
        _replace(file, rng)
    if rng.random() < 0.1:
        return ["pytest", "--passbench", f"--candidate={badinput.write_candidate(folder)}", str(path)]
    return [
        "tasks",
        rng.choice(("validate", "show", "list", "check")),
        str(path if rng.random() < 0.8 else path / "sub"),
    ]


def _replace(file: Path, rng: random.Random) -> None:
    """Make a file another one: of other contents, or of another kind."""
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


def _other_kind(file: Path, rng: random.Random) -> None:
    file.unlink()
    choices: list[Callable[[], object]] = [
        lambda: os.mkfifo(file),
        lambda: badinput.sparse(file),
        file.mkdir,
        lambda: file.symlink_to(
            rng.choice(("/dev/zero", "/dev/null", file.name, "nowhere", "/", "/proc/self/mem", "/dev/tty"))
        ),
        lambda: (file.write_text("x"), file.chmod(0)),
        lambda: (file.mkdir(), file.chmod(0)),
        lambda: None,
    ]
    rng.choice(choices)()


def candidate(folder: Path, rng: random.Random) -> list[str]:
    """Write a candidate with strange things in its folder, or a strange manifest."""
    path = badinput.write_candidate(folder)
    for _ in range(rng.choice((1, 1, 2))):
        draw = rng.random()
        if draw < 0.4:
            manifest = path / badinput.MANIFEST
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
                    badinput.MANIFEST,
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
            str(badinput.write_results(folder, badinput.results())),
            f"--candidate={path}",
            f"--tasks={badinput.write_task(folder)}",
        ]
    return ["pytest", "--passbench", f"--candidate={path}", str(badinput.write_task(folder))]


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
    data: Any = badinput.results()
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
    path = str(badinput.write_results(folder, text))
    if rng.random() < 0.05:
        Path(path).unlink()
        _other_kind(Path(path), rng) if not Path(path).touch() else None  # type: ignore[func-returns-value]
    command = rng.choice(("score", "verify", "merge", "plan"))
    if command == "merge":
        other = badinput.write_results(folder, badinput.results(), "other.json")
        return ["merge", str(folder / "out"), path, *([str(other)] if rng.random() < 0.5 else [])]
    tasks = [f"--tasks={badinput.write_task(folder)}"] if command == "verify" and rng.random() < 0.7 else []
    return [command, path, *tasks]


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


# Command lines: what each subcommand takes, with one word in two from the lists of bad ones

LINES: dict[str, tuple[str, ...]] = {
    "tasks list": ("PATH", "--suite=WORD", "--json"),
    "tasks show": ("PATH",),
    "tasks validate": ("PATH", "PATH"),
    "tasks check gelu-add.task.yaml": ("--sample=NUMBER", "--processes=NUMBER"),
    "score": ("PATH", "--b=NUMBER", "--p=NUMBER", "--interpretation=WORD"),
    "plan": ("PATH", "-n=NUMBER", "--workers=NUMBER", "--json"),
    "verify": ("PATH", "--candidate=PATH", "--tasks=PATH", "--rerun=NUMBER"),
    "merge": ("OUT", "PATH", "PATH"),
    "audit": ("BAD", "--policy=WORD", "--task=PATH", "--json"),
    "doctor": ("--json", "WORD"),
    "forge --only none": (
        "--steps=WORD",
        "--tasks=NUMBER",
        "--train=NUMBER",
        "--processes=NUMBER",
        "--timeout=NUMBER",
        "--layout=WORD",
    ),
    "forge --model": ("BAD", "--input=WORD", "--size=NUMBER,NUMBER", "--out=OUT", "--tasks=NUMBER"),
    "forge --hub ./nowhere": ("--tasks=NUMBER",),
    "forge": (),
    "pytest --passbench": (
        "--candidate=PATH",
        "PATH",
        "--passbench-tasks=PATH",
        "--passbench-suite=WORD",
        "--passbench-tolerance=NUMBER",
        "--passbench-device=WORD",
        "--passbench-threads=NUMBER",
        "--passbench-timeout=NUMBER",
        "--passbench-budget=NUMBER",
        "--passbench-fail-under=AS=NUMBER",
        "--passbench-fail-under=WORD",
        "--passbench-shard=NUMBER/NUMBER",
        "--passbench-seed=WORD",
        "--passbench-b=NUMBER",
        "--passbench-p=NUMBER",
        "--passbench-baseline=WORD",
        "--passbench-report-dir=OUT",
    ),
    "": ("WORD", "WORD"),
}
WORDS = (
    "",
    "x",
    "lite",
    "cuda:99999999999999999999",
    "cpu",
    "é",
    "\udcff",
    "a" * 5000,
    "-h",
    "--help",
    "=",
    ",,,",
    "a=b=c",
    "none",
    "\n" * 50,
    "%s",
    "{}",
)


def line(folder: Path, rng: random.Random) -> list[str]:
    """Return a command line that nobody meant."""
    badinput.write_task(folder)
    badinput.write_results(folder, badinput.results())
    badinput.write_sample(folder)
    badinput.write_candidate(folder)
    os.mkfifo(folder / "pipe")
    badinput.sparse(folder / "sparse")
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


# Running


def _fresh(base: Path, number: int) -> Path:
    folder = base / str(number)
    folder.mkdir()
    return folder


def _removed(folder: Path) -> None:
    """Remove a folder with whatever is in it: folders that nobody may read, or deeper than Python's removal goes."""
    subprocess.run(["rm", "-rf", "--", folder], check=False)


def mutated(count: int, seed: int, only: str, base: Path) -> list[tuple[str, list[str], Outcome]]:
    """Run ``count`` mutated inputs; return kind or name, command line and outcome of each."""
    found = []
    for number in range(count):
        rng = random.Random(f"{seed}/{number}")
        kinds = [only] if only else list(KINDS)
        kind = rng.choices(kinds, [KINDS[name][1] for name in kinds])[0]
        folder = _fresh(base, number)
        argv = KINDS[kind][0](folder, rng)
        found.append((kind, [f"#{number}", *argv], fuzzing.forked(argv, folder)))
        _removed(folder)
    return found


def cases(names: str, base: Path) -> list[tuple[str, list[str], Outcome]]:
    """Run the named cases whose names contain ``names``."""
    found = []
    for number, case in enumerate(badinput.CASES):
        if names in case.name:
            folder = _fresh(base, number)
            argv = case.write(folder)
            found.append((case.name, argv, fuzzing.forked(argv, folder)))
            _removed(folder)
    return found


def main() -> int:
    """Run, print the table, and say whether all went well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="a kind of input; with --cases, a part of their names")
    parser.add_argument("--cases", action="store_true", help="the named cases instead of mutated inputs")
    parser.add_argument("--show", action="store_true", help="print the output of every input that failed")
    parser.add_argument("--json", type=Path, help="write every outcome there")
    args = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    sys.argv = ["passbench"]
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="passbench-fuzz-", ignore_cleanup_errors=True) as base:
        fuzzing.warm_up(_fresh(Path(base), -1))
        found = cases(args.only, Path(base)) if args.cases else mutated(args.inputs, args.seed, args.only, Path(base))
    if args.json:
        args.json.write_text(json.dumps([{"name": name, "argv": argv, **asdict(out)} for name, argv, out in found]))
    bad = [entry for entry in found if entry[2].verdict not in fuzzing.GOOD]
    for name, argv, outcome in bad:
        told = outcome.text[-1500:] if args.show else "".join(list(fuzzing.lines_of(outcome.text))[-1:])[:160]
        print(f"{outcome.verdict}: {name}: {shlex.join(word[:60] for word in argv)}\n    {told}")
    _table(found)
    slowest, largest = max(out.seconds for _, _, out in found), max(out.mebibytes for _, _, out in found)
    print(f"{len(found)} inputs, {len(bad)} bad, {time.monotonic() - started:.0f} s; ", end="")
    print(f"slowest {slowest:.1f} s, largest {largest:.0f} MiB")
    return int(bool(bad))


def _table(found: list[tuple[str, list[str], Outcome]]) -> None:
    counts = Counter((name.partition(":")[0], outcome.verdict) for name, _, outcome in found)
    kinds = dict.fromkeys(kind for kind, _ in counts)
    rows = [[kind, *(counts[kind, verdict] for verdict in VERDICTS)] for kind in kinds]
    print(tabulate(rows, headers=["kind", *VERDICTS]))


if __name__ == "__main__":
    sys.exit(main())
