"""The options of a run, declared once for command line, ini file and :func:`pytest_passbench.evaluate`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_passbench.core import checks
from pytest_passbench.core.criterion import CRITERIA
from pytest_passbench.core.settings import BASELINES, LATEST, SUITES, Settings

#: Fields of Settings that only a pytest run uses. No other way to judge has options or arguments for them.
PYTEST_ONLY = frozenset({"shard", "resume", "compare", "max_regression", "compare_strict"})
MAX_HELD_OUT = 20  # further sizes of a subgraph


@dataclass(frozen=True)
class Option:
    """An option. ``field`` is its name in Settings; ``many``: it may be repeated.

    With ``ini_only`` pytest has it in the ini file alone: it belongs to a project, not to one run of it.
    ``alone`` is its value if the option is given without one; if ``alone`` is empty, a value must be given. ``help``
    is in the form of argparse, with each per cent sign doubled.
    """

    name: str
    type: Callable[[str], Any]
    help: str
    metavar: str
    field: str = ""
    many: bool = False
    short: str = ""
    alone: str = ""
    ini_only: bool = False

    @property
    def key(self) -> str:
        """The option's field of Settings."""
        return self.field or self.name.replace("-", "_")

    @property
    def text(self) -> str:
        """The help as people read it."""
        return self.help.replace("%%", "%")

    @property
    def dest(self) -> str:
        """The option's name in the ini file and in pytest's namespace."""
        return "passbench_" + self.name.replace("-", "_")


OPTIONS = (
    Option("candidate", Path, "folder of passes to judge; may be repeated", "DIR", "candidates", True,
           "--candidate"),
    Option("tasks", Path, "task file, published sample, or a folder of either, in place of the installed "
           "tasks; may be repeated", "PATH", many=True),
    Option("task", str, "id of a task to judge, of whichever suite; may be repeated", "ID", "task_ids", True),
    Option("suite", checks.one_of(*SUITES), "which tasks: lite, full, train or all (default: lite of the installed "
           "tasks, all of given ones)", "NAME"),
    Option("tolerance", checks.tolerance, "t at which outputs must agree with eager, -10 to 0 (default: -5)", "T"),
    Option("criterion", checks.one_of(*CRITERIA), "what makes a case pass and counts in gates: agreement with eager "
           "at t (ladder), being as accurate as eager (fp64), or either (default: ladder)", "NAME"),
    Option("device", checks.device, "cpu, cuda or cuda:N (default: cpu)", "DEVICE"),
    Option("pipeline", checks.one_of("dynamo", "direct", "inductor"), "how passes are applied: dynamo, direct or "
           "inductor (default: dynamo)", "NAME"),
    Option("policy", checks.one_of("kernels", "open"), "what replacements may call: kernels (of torch, allocation "
           "only) or open (default: kernels)", "NAME", ini_only=True),
    Option("audit", checks.one_of("off", "standard", "paranoid"), "off, standard or paranoid (default: standard)",
           "LEVEL"),
    Option("sandbox", checks.one_of("auto", "required"), "required: do not run without bubblewrap (default: auto)",
           "NAME", ini_only=True),
    Option("baseline", checks.one_of(*BASELINES), "also judge TorchInductor beside the candidate, in its "
           "default mode or with max-autotune: inductor or max-autotune; may be repeated", "NAME", "baselines", True),
    Option("against", Path, "folder of another candidate: the reference, measured in the same rounds (see "
           "docs/comparing.md)", "DIR"),
    Option("compare", Path, "results file of an earlier run: a case fails that lost correctness or speed-up, if a "
           "confirming measurement agrees", "FILE"),
    Option("max-regression", checks.allowed_loss, "how much slower a subgraph may be than in the earlier run, or the "
           "reference, as 3%% or 0.03 (default: 3%%); 3%%,strict also fails undecided ones", "SHARE"),
    Option("held-out", checks.whole(0, MAX_HELD_OUT), "further sizes of each subgraph, drawn from the run's secret "
           "seed, at which answers are looked at too (default: 0)", "K"),
    Option("threads", checks.count, "threads of every arm (default: 1)", "N", ini_only=True),
    Option("timeout", checks.seconds, "seconds that a candidate may take for a subgraph, from reading its passes "
           "to the audit (default: 120)", "SECONDS", ini_only=True),
    Option("budget", checks.duration, "how long the run may take, as 90, 10m or 1h: less time, wider intervals "
           "(default: as long as it takes to decide)", "TIME"),
    Option("report-dir", Path, "folder for the run's results (default: reports)", "DIR"),
    Option("fail-under", checks.gates, "exit with 1 if AS, correct, gmean or fast1 is lower: AS=0.9,correct=0.8; "
           "may be repeated", "GATES", many=True),
    Option("shard", checks.shard, "judge only the i-th of N parts of the tasks", "i/N"),
    Option("seed", checks.seed, "the run's secret seed, to draw the same inputs again (default: drawn)", "HEX"),
    Option("resume", str, "go on with a run that was interrupted: its folder (default: the latest)", "RUN",
           alone=LATEST),
)  # fmt: skip


def as_settings(options: Mapping[str, Any]) -> Settings:
    """Return the settings of options: values by field, None for an option that was not given.

    Each candidate's folder is taken once, and the suite is all of given tasks, else lite.
    """
    values = {key: value for key, value in options.items() if value is not None}
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    values["candidates"] = tuple(dict.fromkeys(path.resolve() for path in values.get("candidates", ())))
    values["fail_under"] = tuple(gate for group in values.get("fail_under", ()) for gate in group)
    if "against" in values:
        values["against"] = values["against"].resolve()
    values.setdefault("suite", "all" if values.get("tasks") else "lite")
    return Settings(**values)
