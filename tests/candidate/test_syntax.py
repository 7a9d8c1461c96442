"""Reading a pass file is bounded: any file is read or refused in little time and memory."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from pytest_passbench.candidate.syntax import parse, read_fault

PASS = """
def pattern(x):
    return x


def replacement_args(x):
    return (x,)


def replacement_func():
    return pattern
"""
DEEP = {
    "brackets": "(" * 100_000,
    "brackets over lines": "[\n" * 100_000,
    "calls": "f" + "()" * 50_000,
    "sum": "+".join("a" * 50_000),
    "not": "not " * 100_000 + "a",
    "minus": "-" * 100_000 + "a",
    "power": "**".join("a" * 50_000),
    "attributes": "a" + ".b" * 50_000,
    "lambdas": "lambda a, b: " * 20_000 + "1",
    "conditions": "a if b else " * 20_000 + "c",
    "elif": "if a:\n b\n" + "elif a:\n b\n" * 20_000,
    "indents": "".join(" " * level + "if a:\n" for level in range(99)) + " " * 99 + "a",
    "sum in a format string": "f'{" + "+".join("a" * 50_000) + "}'",
    "format strings in brackets": "f'{" + "(" * 5_000 + "}'",
    "expressions in a long format string": "f'''" + "\n" * 900_000 + "{a}" * 33_000 + "'''",
    "hexadecimal number": "0x" + "f" * 1_000_000,
    "decimal number": "9_" * 400_000 + "9",
    "names": "a, " * 300_000,
    "long line": "a = 1;" * 1_700_000,
    "one string": "'" + "a" * 10_000_000 + "'",
    "brackets behind an accent": "e\u0301 = 1\n" + "(" * 100_000,
}


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
def test_what_nests_too_deeply_or_is_too_long_is_a_fault(tmp_path: Path, text: str) -> None:
    file = tmp_path / "p.py"
    file.write_text(f"{PASS}\nVALUE = 1\n{text}\n")
    fault = read_fault(file)
    assert fault is not None
    assert fault.message.startswith("too complex: ")
    assert str(fault).startswith(f"{file}:{fault.line}: ")


def test_a_ruler_of_underscores_is_no_number(tmp_path: Path) -> None:
    file = tmp_path / "p.py"
    file.write_text(f"# {'_' * 110}\n# {'0' * 100}\n{PASS}")
    assert read_fault(file) is None


def test_a_fault_names_the_line(tmp_path: Path) -> None:
    file = tmp_path / "p.py"
    file.write_text(f"{PASS}\nVALUE = {'-' * 5000}1\n")
    fault = read_fault(file)
    assert fault is not None
    assert fault.line == PASS.count("\n") + 2


LONG = {
    "a table": "TABLE = [\n" + "    1.5, -2.5,\n" * 20_000 + "]\n",
    "a docstring": '"""' + "a (b [c\n" * 50_000 + '"""\n',
    "a kernel's source": "SOURCE = r'''" + "for (int i = 0; i < n; ++i) { out[i] = f(x[i]); }\n" * 10_000 + "'''\n",
    "a sum": "TOTAL = " + " + ".join(["1"] * 900) + "\n",
    "many functions": "def f(x):\n    if x:\n        return x\n    return f(x - 1)\n\n\n" * 5_000,
    "empty lines": "\n" * 500_000,
    "strings": "NAMES = (" + "'abc'\n" * 20_000 + ")\n",
    "format strings": "\n".join("f'{a}{b:>10}{c!r:{d}}{{}}'" for _ in range(500)) + "\n",
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_what_is_only_long_is_read(tmp_path: Path, text: str) -> None:
    file = tmp_path / "p.py"
    file.write_text(PASS + text)
    assert read_fault(file) is None


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"# -*- coding: latin-1 -*-\nx = 1\n", "is not UTF-8 but declares latin-1"),
        (b"#!/usr/bin/python\n# vim: fileencoding=utf-7\n", "is not UTF-8 but declares utf-7"),
        (b"x = '\xe9'\n", "is not UTF-8 (byte 5)"),
        ("x = 1\n".encode("utf-16"), "is not UTF-8 (byte 0)"),
        (b"x = 1\0\n", "contains null bytes"),
    ],
)
def test_only_utf_8_is_read(tmp_path: Path, data: bytes, message: str) -> None:
    file = tmp_path / "p.py"
    file.write_bytes(data)
    fault = read_fault(file)
    assert fault is not None
    assert fault.message == f"cannot be parsed: {message}"


@pytest.mark.parametrize(
    "head", ["", "\ufeff", "# coding: utf-8\n", "# -*- coding: UTF_8 -*-\n", "x = 1\n# coding: cp1252\n"]
)
def test_utf_8_may_be_declared_and_marked(tmp_path: Path, head: str) -> None:
    file = tmp_path / "p.py"
    file.write_text(f"{head}{PASS}NAME = 'é'\n", encoding="utf-8")
    assert read_fault(file) is None


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_count_as_in_python(tmp_path: Path, end: str) -> None:
    file = tmp_path / "p.py"
    file.write_bytes(f"a = 1{end}b = '\x0c'{end}def f(){end}".encode())
    with pytest.raises(SyntaxError) as caught:
        parse(file)
    assert caught.value.lineno == 3


@pytest.mark.slow
def test_the_worst_files_are_done_within_the_limits(tmp_path: Path) -> None:
    """The kernel limits the process of each to 10 s of processor time and 512 MiB."""
    worst = {
        **DEEP,
        "names within the limit": ("a, " * 1_600 + "\n") * 60,
        "long names within the limit": ("é" * 4_000 + "=" + "é," * 500 + "\n") * 100,
        "statements": "a\n" * 95_000,
        "expressions within the limit": "f'''" + "\n" * 900_000 + "{a}" * 9_000 + "'''",
        "escapes": "'" + "\\a" * 500_000 + "'",
        "quotes": "\\'" * 400_000,
        "errors": ("a b " * 1_200 + "\n") * 75,
        "brackets within the limit": "(" * 90 + "not " * 900 + "a" + ")" * 90,
        "wrong brackets": "f(a=" * 90 + "x y" + ")" * 90,
    }
    for index, text in enumerate(worst.values()):
        (tmp_path / f"{index}.py").write_text(text)
    program = """
        import resource, sys, time
        from pathlib import Path
        from pytest_passbench.candidate.syntax import read_fault
        resource.setrlimit(resource.RLIMIT_AS, (512 << 20, 512 << 20))
        for file in sorted(Path(sys.argv[1]).glob("*.py")):
            resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + 10, resource.RLIM_INFINITY))
            read_fault(file)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program), str(tmp_path)], check=True)


def test_a_function_with_a_misspelt_name_is_named(tmp_path):
    file = tmp_path / "p.py"
    file.write_text("def pattern(x): ...\ndef replacement_args(x): ...\ndef replacement_function(): ...\n")
    fault = read_fault(file)
    assert fault is not None
    assert fault.message == "defines no replacement_func (it has replacement_function: rename it)"
