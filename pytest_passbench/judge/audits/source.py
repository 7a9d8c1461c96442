"""The source layer in a run: passes whose files break a rule are left out, before anything of them is loaded."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...candidate.audit import audit
from ...candidate.layout import Candidate, PassDir
from ...report.record import Finding
from ...settings import Policy


@dataclass(frozen=True)
class Reading:
    """What the source audit said of one pass directory: findings, and the stems that are out."""

    findings: list[Finding] = field(default_factory=list)
    out: frozenset[str] = frozenset()

    @property
    def violations(self) -> list[Finding]:
        """The findings that put passes out."""
        return [finding for finding in self.findings if finding.severity == "violation"]


class Sources:
    """Reads each pass directory once, and remembers which passes are out: by their source, or by what they did."""

    def __init__(self, policy: Policy, enabled: bool) -> None:
        self._policy, self._enabled = policy, enabled
        self._readings: dict[Path, Reading] = {}
        self._caught: dict[Path, set[str]] = {}

    def read(self, candidate: Candidate, passes: PassDir) -> Reading:
        """The source audit of a pass directory; files named relative to the candidate."""
        known = self._readings.get(passes.path)
        if known is None:
            known = self._read(candidate, passes) if self._enabled else Reading()
            self._readings[passes.path] = known
        return known

    def _read(self, candidate: Candidate, passes: PassDir) -> Reading:
        inner = [other.path for other in candidate.directories if other.path.is_relative_to(passes.path)]
        others = [folder for folder in inner if folder != passes.path]
        found = [
            finding
            for finding in audit(passes.path, self._policy)
            if not any((passes.path / finding.file).is_relative_to(folder) for folder in others)
        ]
        return Reading([_named(finding, folder(candidate, passes)) for finding in found], _out(passes, found))

    def allowed(self, candidate: Candidate, passes: PassDir) -> PassDir:
        """The pass directory without the passes that are out."""
        out = self.read(candidate, passes).out | self._caught.get(passes.path, set())
        return replace(passes, stems=tuple(stem for stem in passes.stems if stem not in out))

    def caught(self, passes: PassDir, stems: set[str]) -> None:
        """Passes that broke a rule while they ran: out from now on. None named: all of the directory."""
        known = stems & set(passes.stems) or set(passes.stems)
        self._caught.setdefault(passes.path, set()).update(known)


def folder(candidate: Candidate, passes: PassDir) -> str:
    """A pass directory's path within its candidate; "" for the candidate itself."""
    relative = passes.path.resolve().relative_to(candidate.path.resolve()).as_posix()
    return "" if relative == "." else relative


def _named(finding: Finding, folder: str) -> Finding:
    return replace(finding, file=f"{folder}/{finding.file}") if folder and finding.file else finding


def _out(passes: PassDir, findings: list[Finding]) -> frozenset[str]:
    """The passes that a violation puts out: the file's own and whoever names it; a helper's puts out all."""
    out: set[str] = set()
    for finding in findings:
        if finding.severity == "violation":
            stem = finding.file.removesuffix(".py")
            out |= {stem, *_naming(passes, stem)} if stem in passes.stems else set(passes.stems)
    return frozenset(out)


def _naming(passes: PassDir, stem: str) -> set[str]:
    """Passes that may use another: their file, or a helper's, has its name in it."""
    word = re.compile(rf"\b{re.escape(stem)}\b")
    own = {passes.path / f"{name}.py": name for name in passes.stems}
    users = {path for path in passes.path.rglob("*.py") if path.stem != stem and _mentions(path, word)}
    return {own[path] for path in users if path in own} if users <= own.keys() else set(passes.stems)


def _mentions(path: Path, word: re.Pattern[str]) -> bool:
    return word.search(path.read_text(encoding="utf-8", errors="replace")) is not None
