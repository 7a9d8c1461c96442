"""The conditions of a run: two runs with the same ones can stand on one board, and no others.

Conditions are what decides a score besides the candidate: the tasks, the device, how passes are applied and what they
may do, how strictly answers are judged, and the parameters of the scores. The other settings say what was shown,
where results were written, or how long a run measured, which the intervals show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pytest_passbench.core.run import Run
from pytest_passbench.core.settings import ScoreSettings, Settings, same_in

ALWAYS = ("device", "pipeline", "policy", "threads")  # mentioned even if they are the defaults, and first
_USUAL = {name: getattr(Settings, name) for name in (*ALWAYS, *same_in("board")) if name != "score"}
"""The settings that two runs must share, with their defaults. A file without one is older than the option."""

_UNKNOWN = "unknown"


@dataclass(frozen=True)
class RunFile:
    """A run, and the file that it was read from."""

    path: Path
    run: Run


@dataclass(frozen=True)
class ComparableRuns:
    """Runs of the same conditions. ``apart`` says in words why they are not on an earlier board."""

    conditions: Mapping[str, str]
    sources: tuple[RunFile, ...]
    apart: str = ""

    @property
    def about(self) -> str:
        """The :attr:`unusual` conditions as a part of a sentence."""
        return ", ".join(f"{name} {value}" for name, value in self.unusual)

    @property
    def unusual(self) -> list[tuple[str, str]]:
        """The conditions without those that are the defaults, and need no mention."""
        defaults = {**_USUAL, **asdict(ScoreSettings())}
        usual = {name.replace("_", " "): _text(value) for name, value in defaults.items() if name not in ALWAYS}
        return [(name, value) for name, value in self.conditions.items() if usual.get(name) != value]


def conditions(run: Run) -> dict[str, str]:
    """Return a run's conditions as text, by their names for people; ``tasks`` has only their number."""
    device = str(run.settings.get("device", Settings.device)).partition(":")[0]
    settings = {**_USUAL, **run.settings, "device": device}
    values: dict[str, Any] = {
        "suite edition": ", ".join(run.editions) or _UNKNOWN,
        "tasks": len(set(run.tasks)),
        "device": device,
        "machine": run.environment.get("gpu" if device == "cuda" else "cpu", _UNKNOWN),
        "torch": run.environment.get("torch", _UNKNOWN),
        "sandbox": run.environment.get("sandbox", _UNKNOWN),
        **{name: settings[name] for name in _USUAL},
        **asdict(run.score_settings),
    }
    return {name.replace("_", " "): _text(value) for name, value in values.items()}


def grouped(sources: Sequence[RunFile]) -> list[ComparableRuns]:
    """Return the runs in groups that can be compared, the one with most runs first.

    Every group but the first says how it differs from the group before that is nearest to it.
    """
    groups: list[list[RunFile]] = []
    for source in sources:
        home = next((group for group in groups if not any(differences(source.run, near.run) for near in group)), None)
        if home is None:
            groups.append([source])
        else:
            home.append(source)
    groups.sort(key=lambda group: -len(group))
    done_groups: list[ComparableRuns] = []
    for group in groups:
        apart = _apart(group[0].run, [member.sources[0].run for member in done_groups])
        done_groups.append(ComparableRuns(conditions(group[0].run), tuple(group), apart))
    return done_groups


def differences(a: Run, b: Run) -> list[str]:
    """Return in words how the tasks or conditions of run ``a`` differ from those of ``b``."""
    first, other = conditions(a), conditions(b)
    texts = [f"{name} {first[name]} here, {other[name]} there" for name in first if first[name] != other[name]]
    if first["tasks"] == other["tasks"] and set(a.tasks) != set(b.tasks):
        texts.append(f"other tasks ({len(set(a.tasks) & set(b.tasks))} of {first['tasks']} are the same)")
    hashes, others = (run.hashes.get("tasks", {}) for run in (a, b))
    edited = [task for task, value in hashes.items() if others.get(task, value) != value]
    if edited:
        texts.append(f"task {edited[0]} has other contents" + (f", {len(edited)} in all" if edited[1:] else ""))
    return texts


def _apart(run: Run, before: Sequence[Run]) -> str:
    candidates = [(differences(run, other), index) for index, other in enumerate(before, 1)]
    if not candidates:
        return ""
    texts, index = min(candidates, key=lambda item: len(item[0]))
    return f"Not compared with board {index}: {'; '.join(texts)}."


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
