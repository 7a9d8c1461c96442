"""Bad values, paths and words that :mod:`mutations` puts into good inputs."""

from __future__ import annotations

from typing import Any

SCALARS = (
    "null", "~", "[]", "{}", "''", "0", "-1", "1e999", ".nan", ".inf", "-.inf", "nan", "inf", "yes", "2024-01-01",
    "0x7f", "*nobody", "&a [*a]", "<<", "? x", "- - - -", "!!python/name:os.system", "!!binary x", "!!set {a}", "|",
    ">", "%TAG", "float99", "float8_e4m3fn", "complex64", "bool", "int64", "'\\0'", '"\\ud800"', '"\\0"', "a: b: c",
    "[1, 2", "{a: }", "1_000", "1:30", "9" * 30, "9" * 5000, "-" + "9" * 400, "[" * 300, "[" * 50_000,
    "{a: " * 2000, "x" * 100_000, "é\u202e", "2 ** 64", "[1000000, 1000000, 1000]", "[0]", "[-1]", "[1.5]", "[[1]]",
    "[9999999999999999999]", "[2147483648, 2147483648, 4]",
)  # fmt: skip
"""YAML or Python that stands for one value."""

EXPRESSIONS = (
    "9**9**9**9", "1 << 10**9", "'a' * 10**10", "[0] * 10**10", "(" * 300 + "1" + ")" * 300, "in_0" + " + 1" * 2000,
    "-" * 3000 + "1", "in_0" + ".T" * 3000, "in_0" + "[0]" * 3000, "lambda: 0", "[x for x in in_0]", "f'{in_0}'",
    "yield", "await x", "in_0 if in_0 else in_1", "in_0 and in_1", "(y := in_0)", "*in_0", "torch.zeros(10**15)",
    "torch.arange(10**11)", "in_0.repeat(10**9)", "in_0.expand(10**9, 16, 32).contiguous()", "torch.nonzero(in_0)",
    "torch.nonzero(in_0).repeat(10**7)", "__import__('os').system('true')", "open('/dev/zero').read()",
    "torch.load('x')", "in_0.__class__", "in_0.__reduce_ex__(2)", "torch.ops.aten.add",
    "torch.ops.aten.add.Nothing(in_0)", "torch.ops.aten", "torch.nn.functional.linear()", "torch.finfo(in_0)",
    "torch.finfo('x').max", "slice()", "int('9' * 5000)", "int('9' * 10**9)", "float('x')", "complex(1, in_0)",
    "list(range(10**10))", "range(3)", "max()", "in_0[::-1]", "in_0[10**30]", "in_0[None, ..., 'a']", "in_0 @ in_1",
    "in_0 < in_1 < in_0", "1 / 0", "1 % 0", "1 // 0", "0 ** -1", "2.0 ** 10**5", "'\\ud800'", "b'x'", "...", "nan",
    "device(1, 2, 3)", "torch.device('moon')", "in_0.to('moon')", "in_0.view(-1, -1)", "in_9", "{1: 2}", "{**in_0}",
    "torch.cat([in_0] * 2)", "(1).real", "torch.nn.functional.interpolate(in_0, 10**9)",
    "torch.nn.functional.pad(in_0, (0, 10**12))", "torch.nn.functional.one_hot(in_0.long(), 10**12)",
    "torch.randn(10**9)", "torch.tensor([[1], [2, 3]])", "math.factorial(10**9)", "math.comb(10**9, 5)",
    "pow(2, 10**9)", "math.pow(10, 400)", "math.exp(1000)", "math.sqrt(-1)", "round(1e400)", "int(inf)",
    "sum([1, 'a'])", "getattr(in_0, 'grad_fn')",
)  # fmt: skip
"""Expressions of a graph, none of which is sensible."""

VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 5, 99, -11, -(10**9), 10**400, 1.5, -1e308, "", "nan", "WOW", "a\0b", "\ud800",
    "x" * 100_000, "../..", "/dev/zero", [], [5], [[]], [None], [1] * 10_000, {}, {"float": "nan"},
    {"float": "inf"}, {"float": "x"}, {"a": {"a": {"a": 1}}}, {"": 1}, "\x1b[31m", "<b>|`", "9" * 5000,
)  # fmt: skip
"""JSON values of a results file."""

NUMBERS = (
    "0", "-1", "1", "nan", "inf", "-inf", "1e999", "1e-999", "1.5", "", " ", "x", "²", "٣", "9" * 30, "9" * 5000,
    "0x10", "1_0", "+3", "1e9",
)  # fmt: skip
"""Numbers on a command line."""

PATHS = (
    "", ".", "..", "/", "/dev/null", "/dev/zero", "/proc/self/mem", "/nowhere", "x" * 300, "x/" * 3000, "a\0b",
    "\udcff", "~", "*", "-", "--", "::", "a::b", "gelu-add.task.yaml", "results.json", "cand", "sample", "pipe",
    "sparse", "é.task.yaml", "closed",
)  # fmt: skip
"""Paths on a command line."""

WORDS = (
    "", "x", "lite", "cuda:99999999999999999999", "cpu", "é", "\udcff", "a" * 5000, "-h", "--help", "=", ",,,",
    "a=b=c", "none", "\n" * 50, "%s", "{}",
)  # fmt: skip
"""Other words on a command line."""

LINES: dict[str, tuple[str, ...]] = {
    "tasks list": ("PATH", "--suite=WORD", "--json"),
    "tasks show": ("PATH",),
    "tasks validate": ("PATH", "PATH"),
    "tasks check gelu-add.task.yaml": ("--sample=NUMBER", "--processes=NUMBER"),
    "show --json": ("PATH", "--b=NUMBER", "--p=NUMBER", "--interpretation=WORD"),
    "verify": ("PATH", "--candidate=PATH", "--tasks=PATH", "--rerun=NUMBER"),
    "merge": ("OUT", "PATH", "PATH"),
    "explain": ("BAD", "PATH", "--policy=WORD", "--json", "--sanitize"),
    "agent": ("--model=nobody/BAD", "--tasks=PATH", "--turns=NUMBER", "--best-of=NUMBER"),
    "trajectories": ("PATH", "--out=OUT", "--best-of=NUMBER", "--min-reward=NUMBER"),
    "serve --port=0": ("--token-file=BAD", "--tasks=PATH"),
    "doctor": ("--json", "WORD"),
    "forge --only none": (
        "--steps=WORD", "--tasks=NUMBER", "--train=NUMBER", "--processes=NUMBER", "--timeout=NUMBER",
        "--layout=WORD",
    ),
    "forge --model": ("BAD", "--input=WORD", "--size=NUMBER,NUMBER", "--out=OUT", "--tasks=NUMBER"),
    "forge --hub ./nowhere": ("--tasks=NUMBER",),
    "forge": (),
    "pytest --passbench": (
        "--candidate=PATH", "PATH", "--passbench-tasks=PATH", "--passbench-suite=WORD",
        "--passbench-tolerance=NUMBER", "--passbench-device=WORD", "-opassbench_threads=NUMBER",
        "-opassbench_timeout=NUMBER", "--passbench-budget=NUMBER", "--passbench-fail-under=AS=NUMBER",
        "--passbench-fail-under=WORD", "--passbench-shard=NUMBER/NUMBER", "--passbench-seed=WORD",
        "--passbench-baseline=WORD", "--passbench-report-dir=OUT",
    ),
    "": ("WORD", "WORD"),
}  # fmt: skip
"""The arguments of each subcommand. NUMBER, PATH, WORD, OUT and BAD (a path of no good folder) are replaced."""
