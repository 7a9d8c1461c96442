"""The record of one judged subgraph. Every score and table is computed from records alone."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_passbench.core.criterion import Criterion, is_accurate, levels
from pytest_passbench.core.ladder import NEVER, T_STRICT, first_correct, guarded, right_at
from pytest_passbench.core.typed import Data

RAN = "ran"
"""The status of an arm that ran to its end. It says nothing about the answer: :attr:`Record.correct` does."""

EAGER_FAIL = "eager_fail"
"""The status of a subgraph that eager itself failed at."""

HARNESS_FAIL = "harness_fail"
"""The status of a subgraph that could not be judged, through no fault of the candidate. No score counts it."""

STATUSES = (
    RAN, "nan_inf", "shape_mismatch", "type_mismatch", "runtime_fail", "timeout", "crash",
    "compile_fail", EAGER_FAIL, "pass_miss", "integrity", HARNESS_FAIL,
)  # fmt: skip


PLANNING = ("wrapper", "plan", "compile")
"""The phases in which a candidate's wrapper is asked for a launch plan, and its kernels are compiled."""

DISQUALIFIED = "disqualified"
"""The phase of a subgraph on which the pass broke no rule: it broke one on another subgraph."""

LAUNCH_BOUND = 2.0  # a launch-bound call takes more than this many times the device's own time


@dataclass(slots=True)  # a run keeps every record, and each has a report per pass
class Speed(Data, partial=True):
    """A measured ratio eager time / other time. Times in microseconds per call.

    In a ratio to the reference of a run (:class:`Against`), the reference takes eager's place.
    """

    ratio: float
    low: float
    high: float
    verdict: str  # FASTER, SLOWER, SAME, UNRESOLVED
    eager_us: float
    other_us: float
    pairs: Sequence[Sequence[float]] = ()  # per pair the log ratios of its rounds
    eager_device_us: float | None = None  # the device's own time, as runners report it: no verdict depends on it
    other_device_us: float | None = None

    def __post_init__(self) -> None:
        self.pairs = [array("d", pair) for pair in self.pairs]  # a quarter of the memory that lists take

    @property
    def launch_bound(self) -> bool:
        """True if calls of either arm take far longer than the device works on them, since it waits for launches."""
        times = (self.eager_us, self.eager_device_us), (self.other_us, self.other_device_us)
        return any(device is not None and wall > LAUNCH_BOUND * device for wall, device in times)


@dataclass(slots=True)
class PassReport(Data, partial=True):
    """The effect of one pass on one subgraph.

    ``nearness`` says of a miss how far the nearest match got: the share, 0 to 1, of the pattern's operators that had
    a partner. It is 0 for a pass that matched. ``untuned`` is True if a kernel has ``@triton.autotune`` with several
    configurations, and the first valid one was taken without a measurement. ``plan`` is the launch plan of its first
    match, a line per step. ``kind`` is "pattern" or "region". ``left`` has the reasons why regions are left to eager.
    """

    name: str
    matches: int = 0
    operators: list[str] = field(default_factory=list)  # operators covered, in graph order
    miss: str = ""  # if nothing matched: the nearest node, with what was expected and what was found
    computed: list[str] = field(default_factory=list)  # operators that replacement_args itself added to the graph
    nearness: float = 0.0
    untuned: bool = False
    plan: list[str] = field(default_factory=list)
    kind: str = "pattern"
    left: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Finding(Data, partial=True):
    """A finding of an audit layer. ``severity`` is "violation" or "warning", or "error" in ``passbench explain``.

    An error is a mistake that makes a subgraph fail, and accuses nobody.
    """

    layer: str
    rule: str
    severity: str
    message: str
    file: str = ""
    line: int = 0

    @property
    def place(self) -> str:
        """The file, with its line if it is known; "" if there is no file."""
        return f"{self.file}:{self.line}" if self.file and self.line else self.file


@dataclass(slots=True)
class GeneratedCode(Data, partial=True):
    """The code that a compiler has generated for a program: the kernels that a call launches, and its call path.

    ``call_us`` are the microseconds of a call in which the kernels do nothing, in the process that compiled them:
    guards, wrapper and allocations. It is None if the wrapper calls operators of torch's too.
    """

    kernels: int = 0
    call_us: float | None = None


@dataclass(slots=True)
class ArmResult(Data, partial=True):
    """The result of one program (the candidate, or a baseline such as "inductor") on a subgraph.

    ``status`` is one of :data:`STATUSES`; RAN does not mean that the answer is right. ``correct_from`` has for each
    output the smallest t at which it passes: BITWISE and NEVER are its ends (:mod:`pytest_passbench.core.ladder`).
    ``rounding`` names the first operator whose half-precision rounding a wrong answer leaves out, if one explains it.
    ``error64`` has for each output the greatest absolute error against float64, ``greatest_ratio64`` and
    ``mean_ratio64`` the greatest and the mean error as ratios to eager's (docs/accuracy.md). They are empty if the
    graph has no float64 form. ``speed`` is None if nothing ran, or if the speed was not measured (then
    ``speed_note`` says why). ``generated`` is None unless TorchInductor compiled the program for a CPU.
    """

    status: str = RAN
    phase: str = ""
    message: str = ""
    output: str = ""
    correct_from: list[int] = field(default_factory=list)
    worst: str = ""
    error64: list[float] = field(default_factory=list)
    greatest_ratio64: list[float] = field(default_factory=list)
    mean_ratio64: list[float] = field(default_factory=list)
    speed: Speed | None = None
    speed_note: str = ""
    rounding: str = ""
    generated: GeneratedCode | None = None

    @property
    def first_correct(self) -> int:
        """The smallest t at which every output passes; NEVER if it passes at none, or did not run to its end."""
        return first_correct(self.correct_from) if self.status == RAN else NEVER

    def accurate(self, dtypes: Sequence[str]) -> bool | None:
        """Return True if outputs of these dtypes are as accurate as eager's; None without outputs or float64 form."""
        if self.status != RAN or not self.greatest_ratio64:
            return None
        return is_accurate(dtypes, self.greatest_ratio64, self.mean_ratio64)


@dataclass(slots=True)
class Against(Data, partial=True):
    """The reference on a subgraph (``--passbench-against``), measured in the same rounds as the candidate.

    ``arm`` is its own result, with its speed-up over eager. ``speed`` is the ratio of its time to the candidate's,
    None if one of them was not measured.
    """

    arm: ArmResult = field(default_factory=ArmResult)
    speed: Speed | None = None


@dataclass(slots=True)
class Stored(Data, partial=True):
    """An earlier run's result on the same subgraph (``--passbench-compare``).

    ``correct`` follows the present run's t and criterion. ``speed`` has no ``pairs``. ``again`` is the
    confirming measurement of the present run, if there was one. ``note`` says why the two are not compared.
    """

    status: str = RAN
    correct: bool = False
    speed: Speed | None = None
    again: Speed | None = None
    note: str = ""


@dataclass(slots=True)
class FurtherSize(Data, partial=True):
    """The candidate at a further size of a subgraph (``--passbench-held-out``), which is in no score.

    One of a subgraph's further sizes is timed, if its answer is right; the other arms have no speed. A size that
    shows nothing about the candidate stays in the record, so that a reader can count the sizes that were drawn.
    ``batch`` and ``size`` are those of the model. ``dtypes`` and the null answer's levels are as in :class:`Record`.
    """

    batch: int
    size: int
    arm: ArmResult = field(default_factory=ArmResult)
    dtypes: list[str] = field(default_factory=list)
    null_from: int = NEVER
    null_accurate: bool = False

    @property
    def judged(self) -> bool:
        """True unless a fault of the machine or of the harness, or eager, kept it from being judged."""
        return self.arm.status not in (HARNESS_FAIL, EAGER_FAIL)

    @property
    def has_kernel(self) -> bool:
        """False if no pass matched, or if none gave a launch plan for this size."""
        refused = self.arm.status in ("runtime_fail", "compile_fail") and self.arm.phase in PLANNING
        return self.arm.status != "pass_miss" and not refused

    def outcome(self, criterion: Criterion, t: int) -> str:
        """Return how a candidate that is right at the subgraph's own size fares here, in words."""
        if not self.judged:
            return self.arm.status
        if not self.has_kernel:
            return "no kernel for this shape"
        return "right at both" if self.is_correct(criterion, t) else "right at the public size alone"

    def is_correct(self, criterion: Criterion, t: int) -> bool:
        """Return True if the answer is right at ``t`` by a criterion, null guard included."""
        return right_at(*self._levels(criterion), t)

    def is_refused(self, criterion: Criterion, t: int) -> bool:
        """Return True if eager fails or a null answer passes here too: another size was drawn in its place."""
        accepts_null = self.arm.status == RAN and guarded(NEVER, self._levels(criterion)[1], t)
        return self.arm.status == EAGER_FAIL or accepts_null

    def _levels(self, criterion: Criterion) -> tuple[int, int]:
        accurate = self.arm.accurate(self.dtypes)
        return levels(criterion, self.arm.first_correct, self.null_from, accurate, self.null_accurate)


Key = tuple[str, str, str]
"""The task, the candidate and the subgraph of a record."""


@dataclass(slots=True)
class Record(Data, partial=True):
    """A subgraph judged for a candidate. ``tolerance`` is the run's t, ``criterion`` decides what is correct at it.

    ``null_accurate``: a null answer is as accurate as eager's. ``left_out`` are the larger subgraphs of its dtype
    that were not judged because Triton's interpreter, which is slow and whose speed says nothing, runs this one.
    """

    task: str
    subgraph: str
    candidate: str
    source: str = ""
    dtype: str = ""
    dtypes: list[str] = field(default_factory=list)  # of eager's outputs
    tolerance: int = T_STRICT
    criterion: Criterion = "ladder"
    null_from: int = NEVER
    null_accurate: bool = False
    eager_error64: list[float] = field(default_factory=list)
    arm: ArmResult = field(default_factory=ArmResult)
    baselines: dict[str, ArmResult] = field(default_factory=dict)
    passes: list[PassReport] = field(default_factory=list)
    operators: list[str] = field(default_factory=list)  # every operator of the subgraph, in order
    headroom: float = 0.0  # how much faster than eager the task could be at most, 0: not known
    findings: list[Finding] = field(default_factory=list)
    durations: dict[str, float] = field(default_factory=dict)  # seconds by phase
    folder: str = ""  # the pass directory that answered, within the candidate; "" for the candidate itself
    task_hash: str = ""  # SHA-256 of the task's contents
    edition: str = ""  # of the suite that the task belongs to
    against: Against | None = None  # None: the run has no reference
    stored: Stored | None = None  # None: no earlier run was compared, or it does not have the subgraph
    left_out: list[str] = field(default_factory=list)  # ids
    held_out: list[FurtherSize] = field(default_factory=list)  # further sizes

    @property
    def key(self) -> Key:
        """The identity of the record: of two with the same key, the later one counts."""
        return self.task, self.candidate, self.subgraph

    @property
    def judged(self) -> bool:
        """True unless a fault of the machine or of the harness kept it from being judged."""
        return self.arm.status != HARNESS_FAIL

    def levels(self, criterion: Criterion, arm: str = "candidate") -> tuple[int, int]:
        """Return the smallest t at which an arm is correct under a criterion, and the smallest for a null answer.

        Raises KeyError if the record has no arm of this name.
        """
        result = self.result(arm)
        return levels(criterion, result.first_correct, self.null_from, self.accurate(arm), self.null_accurate)

    def accurate(self, arm: str = "candidate") -> bool | None:
        """Return True if an arm's answer is as accurate as eager's; None without an answer or a float64 form.

        Raises KeyError if the record has no arm of this name.
        """
        return self.result(arm).accurate(self.dtypes)

    def result(self, arm: str) -> ArmResult:
        """Return the result of the candidate, of the reference, or of the baseline of this name.

        Raises KeyError if there is none.
        """
        if arm == "reference" and self.against is not None:
            return self.against.arm
        return self.arm if arm == "candidate" else self.baselines[arm]

    @property
    def correct(self) -> bool:
        """True if the candidate's answer is right at the run's t by its criterion, null guard included."""
        return self.is_correct("candidate")

    def is_correct(self, arm: str, criterion: Criterion | None = None) -> bool:
        """Return True if an arm's answer is right at the run's t, null guard included.

        ``criterion`` replaces the run's criterion. Raises KeyError if the record has no arm of this name.
        """
        return right_at(*self.levels(criterion or self.criterion, arm), self.tolerance)

    @property
    def held_out_counted(self) -> list[FurtherSize]:
        """The further sizes that no other size has replaced."""
        return [item for item in self.held_out if not item.is_refused(self.criterion, self.tolerance)]

    @property
    def held_out_judged(self) -> list[FurtherSize]:
        """The further sizes that were judged.

        Empty if the answer at the subgraph's own size is wrong, even if only a second measurement showed that.
        """
        return [item for item in self.held_out_counted if item.judged] if self.correct else []

    @property
    def held_out_failures(self) -> list[FurtherSize]:
        """The further sizes at which the candidate is not right at the run's t by its criterion."""
        return [item for item in self.held_out_judged if not item.is_correct(self.criterion, self.tolerance)]

    @property
    def held_out_speed(self) -> Speed | None:
        """The speed-up at a further size at which the candidate is right; None if none was measured."""
        right = (item for item in self.held_out_judged if item.is_correct(self.criterion, self.tolerance))
        return next((item.arm.speed for item in right if item.arm.speed is not None), None)

    @property
    def head_to_head(self) -> Speed | None:
        """The ratio of the reference's time to the candidate's. It counts only if both answers are right."""
        if self.against is None or not self.correct or not self.is_correct("reference"):
            return None
        return self.against.speed

    @property
    def nearer(self) -> bool:
        """True if no output of the candidate is further from float64's than eager's, and one is nearer."""
        pairs = list(zip(self.arm.error64, self.eager_error64, strict=False))
        return all(error <= eager for error, eager in pairs) and any(error < eager for error, eager in pairs)

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON-ready builtins. Each arm also says whether it is as accurate as eager."""
        data: dict[str, Any] = self.to_data()
        data["arm"]["accurate"] = self.accurate()
        for name, baseline in data["baselines"].items():
            baseline["accurate"] = self.accurate(name)
        if self.against is not None:
            data["against"]["arm"]["accurate"] = self.accurate("reference")
        return {name: value for name, value in data.items() if value is not None}
