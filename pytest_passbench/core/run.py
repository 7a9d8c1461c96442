"""A run as a value: its settings, its environment and its records."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, fields
from typing import Any

from pytest_passbench.core.criterion import CRITERIA, Criterion
from pytest_passbench.core.grouping import grouped
from pytest_passbench.core.record import Record
from pytest_passbench.core.settings import ScoreSettings
from pytest_passbench.core.typed import Data

SCHEMA = "passbench/1"


@dataclass
class Run(Data, partial=True):
    """The contents of a results file; docs/results.md has it field by field.

    ``tasks`` are the ids that were selected, judged or not; ``selected`` says for each candidate and task how many
    subgraphs were to be judged, without those that records leave out; ``candidates`` have ``name``, ``path`` and
    ``content_hash``; ``against`` is the reference in the same form, empty if there is none; ``compared`` describes
    the earlier run whose results records have in ``stored``, and is empty if there is none; ``started`` and
    ``finished`` are ISO 8601 times; ``parts`` says what a merged run was made of; ``hashes`` are the SHA-256 of each
    task judged (``tasks``) and of the ``harness``, with the ``editions`` of the suites judged. If the run was read
    from a file, ``digest`` is that in the file, and ``untouched`` is True if it is the digest of the contents.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    tasks: list[str] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    candidates: list[dict[str, Any]] = field(default_factory=list)
    seed: dict[str, Any] = field(default_factory=dict)
    noise: dict[str, Any] = field(default_factory=dict)
    started: str = ""
    finished: str = ""
    interrupted: bool = False
    parts: list[dict[str, Any]] = field(default_factory=list)
    selected: dict[str, dict[str, int]] = field(default_factory=dict)
    hashes: dict[str, Any] = field(default_factory=dict)
    against: dict[str, Any] = field(default_factory=dict)
    compared: dict[str, Any] = field(default_factory=dict)
    digest: str = ""
    untouched: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the run as JSON-ready builtins, with its schema and the digest of its present contents."""
        values = {name: value for name, value in vars(self).items() if name not in ("digest", "untouched")}
        content = {"schema": SCHEMA, **values, "records": [record.to_json() for record in self.records]}
        return {**content, "digest": digest(content)}

    @property
    def score_settings(self) -> ScoreSettings:
        """The b, p and interpretation that the run was made with; defaults for what it does not name."""
        names = {f.name for f in fields(ScoreSettings)}
        score = self.settings.get("score")
        values = score if isinstance(score, dict) else {}
        return ScoreSettings(**{name: value for name, value in values.items() if name in names})

    @property
    def criterion(self) -> Criterion:
        """The criterion of the run's cases and gates.

        A file without one was written when there was only the ladder.
        """
        named = self.settings.get("criterion")
        return next((criterion for criterion in CRITERIA if criterion == named), "ladder")

    @property
    def has_accuracy(self) -> bool:
        """True if the run compared errors against float64 with eager's."""
        return any(
            arm.greatest_ratio64 for record in self.records for arm in (record.arm, *record.baselines.values())
        )

    @property
    def names(self) -> list[str]:
        """The candidates' names in the order given, then those that only records have."""
        listed = [str(candidate.get("name", "")) for candidate in self.candidates]
        return list(dict.fromkeys(listed + [record.candidate for record in self.records]))

    @property
    def baselines(self) -> list[str]:
        """The baselines' names, in the order in which the records have them."""
        return list(dict.fromkeys(name for record in self.records for name in record.baselines))

    @property
    def editions(self) -> list[str]:
        """The editions of the suites whose tasks were judged. Results that name none are of the first."""
        editions = self.hashes.get("editions")
        return list(editions) if editions is not None else ["1"] if self.records else []

    def count(self, candidate: str, task: str) -> int:
        """Return how many subgraphs of a task were to be judged for a candidate; 1 if the file does not say."""
        return self.selected.get(candidate, {}).get(task, 1)

    def left_out(self, candidate: str) -> int:
        """Return how many subgraphs were not judged for a candidate since Triton's interpreter runs smaller ones."""
        return sum(len(record.left_out) for record in self.of(candidate))

    def of(self, candidate: str) -> list[Record]:
        """Return one candidate's records."""
        return [record for record in self.records if record.candidate == candidate]

    def by_task(self, candidate: str) -> dict[str, list[Record]]:
        """Return one candidate's records by task, for all of the run's tasks."""
        return {task: [] for task in self.tasks} | grouped(self.of(candidate), lambda record: record.task)

    def beside(self, baseline: str) -> list[Record]:
        """Return the records that have the baseline: for each subgraph the first candidate's."""
        with_it = (record for record in self.records if baseline in record.baselines)
        return [first for first, *_ in grouped(with_it, lambda record: (record.task, record.subgraph)).values()]


def plain(value: Any) -> Any:
    """Return ``value`` in builtins that JSON has; NaN and infinities, which it lacks, as ``{"float": "nan"}``."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return {"float": repr(value)}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


def digest(content: dict[str, Any]) -> str:
    """Return the SHA-256, in hex, of the canonical JSON of everything in ``content`` but its ``digest``.

    Keys are sorted; there are no spaces and only ASCII characters.
    """
    covered = {name: value for name, value in content.items() if name != "digest"}
    text = json.dumps(plain(covered), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
