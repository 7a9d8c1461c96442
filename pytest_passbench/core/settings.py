"""The settings of a run, in one frozen value.

It is built by the plugin from the command line and ini file, or directly by callers of
:func:`pytest_passbench.evaluate`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pytest_passbench.core.criterion import Criterion

Pipeline = Literal["dynamo", "direct", "inductor"]
Policy = Literal["kernels", "open"]
Audit = Literal["off", "standard", "paranoid"]
Sandbox = Literal["auto", "required"]
Interpretation = Literal["default", "mismatch_extended"]
SUITES = ("lite", "full", "train", "all")
LATEST = "latest"  # the newest run that can be resumed
METRICS = ("AS", "correct", "gmean", "fast1")  # scores that a gate may be about


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
    ``against`` is the folder of the reference: another candidate, measured in the same rounds.
    ``compare`` is the results file of an earlier run. A speed-up may be lower than there by ``max_regression``, a
    share of it; with ``compare_strict`` that has to be certain.
    ``audit_skip`` names audit layers to leave out: for measuring what each of them costs and stops.
    """

    candidates: tuple[Path, ...] = ()
    tasks: tuple[Path, ...] = ()
    task_ids: tuple[str, ...] = ()
    suite: str = "lite"
    only_matching: bool = False
    tolerance: int = -5
    criterion: Criterion = "ladder"
    device: str = "cpu"
    pipeline: Pipeline = "dynamo"
    policy: Policy = "kernels"
    audit: Audit = "standard"
    audit_skip: tuple[str, ...] = ()
    sandbox: Sandbox = "auto"
    baselines: tuple[str, ...] = ()
    threads: int = 1
    timeout: float = 120.0
    budget: float | None = None
    trusted: bool = False
    report_dir: Path = Path("reports")
    fail_under: tuple[tuple[str, float], ...] = ()
    shard: tuple[int, int] | None = None
    seed: str | None = None
    against: Path | None = None
    compare: Path | None = None
    max_regression: float = 0.03
    compare_strict: bool = False
    resume: str | None = None
    score: ScoreSettings = field(default_factory=ScoreSettings)

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders of all candidates, the reference's too. The judging process imports nothing from them."""
        return (*self.candidates, *([self.against] if self.against is not None else []))
