"""The settings of a run, in one frozen value.

It is built by the plugin from the command line and ini file, or directly by callers of
:func:`pytest_passbench.evaluate`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Literal

from pytest_passbench.core.criterion import Criterion

Pipeline = Literal["dynamo", "direct", "inductor"]
INDUCTOR: Pipeline = "inductor"
"""The pipeline of TorchInductor, and the name of the baseline that it gives."""
BASELINES = (INDUCTOR, "max-autotune")
"""The compilers that may be judged beside a candidate: TorchInductor in its default mode, and with max-autotune."""
Policy = Literal["kernels", "open"]
Audit = Literal["off", "standard", "paranoid"]
Sandbox = Literal["auto", "required"]
Interpretation = Literal["default", "mismatch_extended"]
SUITES = ("lite", "full", "train", "all")
LATEST = "latest"  # the newest run that can be resumed
METRICS = ("AS", "correct", "gmean", "fast1")  # scores that a gate may be about

Role = Literal["resume", "merge", "board", "compare", "rerun", "command"]
"""The uses of two runs, or of two halves of one, in which a setting has to be the same.

- ``resume``: both halves judge the same subgraphs in the same way. Gates and scores are computed at the end.
- ``merge``: the merged file has one value of it. Paths may differ: what they lead to is compared by its contents.
- ``board``: AS depends on it. AS is about all t, and tasks and sandbox are compared as the run found them.
- ``compare``: a speed-up over eager means something else under another value.
- ``rerun``: ``passbench verify`` judges with the run's value. No file can make it trust the candidate's code.
- ``command``: the command that judges a task again names it, if it has an option.
"""


def _same(*roles: Role) -> dict[str, tuple[Role, ...]]:
    """Return the metadata of a setting with these roles."""
    return {"roles": roles}


@dataclass(frozen=True)
class ScoreSettings:
    """The parameters of S(t), ES(t) and AS (docs/scores.md)."""

    b: float = 0.1
    p: float = 0.0
    interpretation: Interpretation = "default"


@dataclass(frozen=True)
class Settings:
    """The settings of a run. Times are in seconds.

    ``task_ids`` names the only tasks to judge, whatever ``suite`` says; empty for all of the suite.
    With ``only_matching``, tasks that no pass of a candidate matches are left out: no score has them.
    ``held_out`` is the number of further sizes of a subgraph that are drawn, and judged for correctness.
    ``against`` is the folder of the reference: another candidate, measured in the same rounds.
    ``compare`` is the results file of an earlier run. A speed-up may be lower than in that run by the share
    ``max_regression`` of it. With ``compare_strict``, a case also fails if that is not certain. ``score`` has no
    option: ``passbench show`` scores a run again with other parameters.
    """

    candidates: tuple[Path, ...] = field(default=(), metadata=_same())
    tasks: tuple[Path, ...] = field(default=(), metadata=_same("resume", "command"))
    task_ids: tuple[str, ...] = field(default=(), metadata=_same("resume", "merge"))
    suite: str = field(default="lite", metadata=_same("resume", "merge"))
    tolerance: int = field(default=-5, metadata=_same("resume", "merge", "rerun", "command"))
    criterion: Criterion = field(default="ladder", metadata=_same("resume", "merge", "rerun", "command"))
    device: str = field(default="cpu", metadata=_same("resume", "merge", "board", "compare", "rerun", "command"))
    pipeline: Pipeline = field(
        default="dynamo", metadata=_same("resume", "merge", "board", "compare", "rerun", "command")
    )
    policy: Policy = field(default="kernels", metadata=_same("resume", "merge", "board", "rerun", "command"))
    audit: Audit = field(default="standard", metadata=_same("resume", "merge", "board", "rerun", "command"))
    sandbox: Sandbox = field(default="auto", metadata=_same("resume", "merge", "rerun", "command"))
    baselines: tuple[str, ...] = field(default=(), metadata=_same("resume", "merge", "command"))
    held_out: int = field(default=0, metadata=_same("resume", "merge", "rerun", "command"))
    threads: int = field(default=1, metadata=_same("resume", "merge", "board", "compare", "rerun", "command"))
    timeout: float = field(default=120.0, metadata=_same("resume", "merge", "board", "rerun", "command"))
    budget: float | None = field(default=None, metadata=_same("merge"))
    only_matching: bool = field(default=False, metadata=_same("resume", "merge", "board"))
    trusted: bool = field(default=False, metadata=_same("resume", "merge", "board"))
    report_dir: Path = field(default=Path("reports"), metadata=_same())
    fail_under: tuple[tuple[str, float], ...] = field(default=(), metadata=_same("merge"))
    shard: tuple[int, int] | None = field(default=None, metadata=_same("resume"))
    seed: str | None = field(default=None, metadata=_same())
    against: Path | None = field(default=None, metadata=_same("command"))
    compare: Path | None = field(default=None, metadata=_same("command"))
    max_regression: float = field(default=0.03, metadata=_same("merge", "command"))
    compare_strict: bool = field(default=False, metadata=_same("merge", "command"))
    resume: str | None = field(default=None, metadata=_same())
    score: ScoreSettings = field(default_factory=ScoreSettings, metadata=_same("merge", "board", "command"))

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders of all candidates, the reference's too. The judging process imports nothing from them."""
        return (*self.candidates, *([self.against] if self.against is not None else []))


@cache
def same_in(role: Role) -> tuple[str, ...]:
    """Return the settings that have to be the same in a role, in their order."""
    return tuple(setting.name for setting in fields(Settings) if role in setting.metadata["roles"])
