"""The profile of a compiler: the share of subgraphs on which it is slower than eager, by time, dtype and class."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from pytest_passbench.core.ladder import right_at
from pytest_passbench.core.plurals import counted
from pytest_passbench.core.record import Record, Speed
from pytest_passbench.core.run import Run
from pytest_passbench.report.tables import NONE, Table, offset, tolerance
from pytest_passbench.score.classes import class_of
from pytest_passbench.score.interval import Interval, combined

BOUNDS_MS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
"""The bounds between the groups of eager's time, in milliseconds per call."""
VERDICTS = ("SLOWER", "SAME", "FASTER", "UNRESOLVED")


@dataclass(frozen=True)
class ProfiledSubgraph:
    """A subgraph on which a compiler was measured. ``kind`` is its class, ``right`` says by which criteria it is."""

    task: str
    subgraph: str
    dtype: str
    kind: str
    speed: Speed
    right: tuple[bool, bool]

    @property
    def eager_ms(self) -> float:
        """Eager's time per call in milliseconds."""
        return self.speed.eager_us / 1e3

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON-ready builtins."""
        speed, (agrees, accurate) = self.speed, self.right
        return {
            "task": self.task,
            "subgraph": self.subgraph,
            "dtype": self.dtype,
            "class": self.kind,
            "eager_us": speed.eager_us,
            "us": speed.other_us,
            "speed_up": [speed.ratio, speed.low, speed.high],
            "verdict": speed.verdict,
            "agrees": agrees,
            "accurate": accurate,
        }


@dataclass(frozen=True)
class CompilerProfile:
    """The profile of a compiler, with agreement at ``tolerance``.

    ``failed`` subgraphs gave no speed. All ratios may share the error ``shared`` (log).
    """

    compiler: str
    subgraphs: tuple[ProfiledSubgraph, ...]
    failed: int
    tolerance: int
    shared: float

    def groups(self) -> Iterator[tuple[str, list[tuple[str, list[ProfiledSubgraph]]]]]:
        """Yield each way to divide the subgraphs, with its groups that have any."""
        yield "eager's time", [(_range(low, high), members) for low, high, members in self.by_time()]
        yield "dtype", self._by(lambda item: item.dtype)
        yield "class of operators", self._by(lambda item: item.kind)

    def by_time(self) -> Iterator[tuple[float, float, list[ProfiledSubgraph]]]:
        """Yield the bounds of each group of eager's time in milliseconds, and its subgraphs if it has any."""
        for low, high in zip((0.0, *BOUNDS_MS), (*BOUNDS_MS, inf), strict=True):
            members = [item for item in self.subgraphs if low <= item.eager_ms < high]
            if members:
                yield low, high, members

    def _by(self, key: Callable[[ProfiledSubgraph], str]) -> list[tuple[str, list[ProfiledSubgraph]]]:
        groups: dict[str, list[ProfiledSubgraph]] = {}
        for item in self.subgraphs:
            groups.setdefault(key(item), []).append(item)
        return sorted(groups.items(), key=lambda group: -len(group[1]))

    def to_json(self) -> dict[str, Any]:
        """Return the profile as JSON-ready builtins: the shares of each group, and every subgraph."""
        groups = {
            division: {name: _shares(members, self.shared) for name, members in parts}
            for division, parts in self.groups()
        }
        return {
            "compiler": self.compiler,
            "all": _shares(self.subgraphs, self.shared),
            "failed": self.failed,
            "groups": groups,
            "subgraphs": [item.to_json() for item in self.subgraphs],
        }


def profile(run: Run, compiler: str) -> CompilerProfile:
    """Return the profile of a baseline of a run. Its result on a subgraph counts once, however many candidates."""
    records = {(record.task, record.subgraph): record for record in run.records if compiler in record.baselines}
    measured = [(record, speed) for record in records.values() if (speed := record.result(compiler).speed)]
    subgraphs = tuple(_profiled(record, speed, compiler) for record, speed in measured)
    return CompilerProfile(compiler, subgraphs, len(records) - len(measured), tolerance(run), offset(run))


def _profiled(record: Record, speed: Speed, compiler: str) -> ProfiledSubgraph:
    right = (
        right_at(*record.levels("ladder", compiler), record.tolerance),
        right_at(*record.levels("fp64", compiler), record.tolerance),
    )
    return ProfiledSubgraph(record.task, record.subgraph, record.dtype, class_of(record.operators), speed, right)


def _range(low: float, high: float) -> str:
    if not low:
        return f"below {high:g} ms"
    return f"{low:g} ms and more" if high == inf else f"{low:g} to {high:g} ms"


def _shares(members: Sequence[ProfiledSubgraph], shared: float) -> dict[str, Any]:
    mean, count = _mean(members, shared), max(1, len(members))
    verdicts = [item.speed.verdict for item in members]
    return {
        "subgraphs": len(members),
        **{verdict.lower(): verdicts.count(verdict) / count for verdict in VERDICTS},
        "speed_up": None if mean is None else [mean.ratio, mean.low, mean.high],
        "agrees": sum(item.right[0] for item in members) / count,
        "accurate": sum(item.right[1] for item in members) / count,
    }


def _mean(members: Sequence[ProfiledSubgraph], shared: float) -> Interval | None:
    return combined([item.speed for item in members], shared)


def tables(view: CompilerProfile) -> Iterator[Table]:
    """Yield a table of all subgraphs, and one per way to divide them. All shares are in percent."""
    right = (f"t = {view.tolerance}", "fp64")
    headers = ("", "subgraphs", "slower", "tied", "faster", "open", "speed-up", *right)
    whole = (_row(view.compiler, view.subgraphs, view),)
    yield Table(f"{view.compiler} against eager (shares in %)", headers, whole, brief=("speed-up",))
    for division, parts in view.groups():
        rows = tuple(_row(name, members, view) for name, members in parts)
        yield Table(f"By {division}", headers, rows, brief=("speed-up",))


def sentences(view: CompilerProfile) -> Iterator[str]:
    """Yield what the tables leave open."""
    yield (
        "Slower, tied, faster: the verdict on the speed-up over eager, whether the answer is right or not. Open: its "
        f"interval allows none. t = {view.tolerance}, fp64: the answer is right by that criterion."
    )
    if view.failed:
        yield f"{counted(view.failed, 'subgraph')} gave no speed and are in no row."


def _row(name: str, members: Sequence[ProfiledSubgraph], view: CompilerProfile) -> tuple[str, ...]:
    return name, *_cells(_shares(members, view.shared))


def _cells(shares: dict[str, Any]) -> tuple[str, ...]:
    speed_up = shares["speed_up"]
    percents = [f"{100 * shares[name]:.0f}" for name in ("slower", "same", "faster", "unresolved")]
    mean = NONE if speed_up is None else str(Interval(*speed_up))
    return (
        str(shares["subgraphs"]),
        *percents,
        mean,
        *(f"{100 * shares[name]:.0f}" for name in ("agrees", "accurate")),
    )
