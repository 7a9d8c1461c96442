"""The console script where the machine gives less than usual: one line, and no traceback."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest

from pytest_passbench.commands.main import main
from pytest_passbench.run import results_file
from support.made_records import record_of, run_of
from support.plugin_runs import LEAN, PytestFolder

LIMIT = "`ulimit -v` shows the limit of a process"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{show} > /dev/full", "standard output cannot be written: No space left on device"),
        ("{show} --json > /dev/full", "standard output cannot be written: No space left on device"),
        ("{show} >&-", "standard output is closed"),
        ("ulimit -v 400000; {explain}", f"there is not enough memory for this ({LIMIT})"),
    ],
)
def test_what_the_machine_does_not_give_is_one_line(tmp_path, line, said):
    results_file.write(tmp_path, run_of(record_of("task", "s")))
    (tmp_path / "cand").mkdir()
    (tmp_path / "cand" / "sorted_output_pass_rule_names.json").write_text("[]")
    script = shlex.join([sys.executable, "-c", "from pytest_passbench.commands.main import main; exit(main())"])
    words = {"show": f"{script} show results.json", "explain": f"{script} explain cand"}
    ran = subprocess.run(
        ["/bin/sh", "-c", line.format(**words)], cwd=tmp_path, stderr=subprocess.PIPE, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (1, f"passbench: error: {said}\n")


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("-n 40", "ulimit -n: open files: this process is limited to 40, and judging takes 256 (raise the limit)"),
        ("-f 100", "ulimit -f: the size of a file: this process is limited to 0.0* MiB, and judging takes 256 MiB *"),
        ("-v 3000000", "ulimit -v: address space: this process is limited to 2.86 GiB, and judging takes 4 GiB *"),
    ],
)
def test_a_limit_that_judging_cannot_do_with_is_named_at_the_start(pytester, monkeypatch, limit, said):
    bench = PytestFolder(pytester, monkeypatch)
    bench.task("a")
    command = shlex.join([sys.executable, "-m", "pytest", "--passbench", "--candidate=passes", *LEAN])
    result = pytester.run("/bin/sh", "-c", f"ulimit {limit}; exec {command}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {said}"])
    assert not list(bench.path.glob("reports/*"))


def test_a_value_of_two_dashes_alone_is_wrong_usage(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["serve", "--port=0", "--token-file=--"])
    assert "argument --token-file: '--' is no value" in capsys.readouterr().err


def test_an_option_has_one_spelling(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["explain", "passes", "--al"])
    assert "unrecognized arguments: --al" in capsys.readouterr().err
