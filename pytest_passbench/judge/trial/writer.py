"""The writer of a record: the failures, outputs, answers and speeds of a subgraph's arms."""

from __future__ import annotations

import math
from collections.abc import Mapping

from pytest_passbench.core import misses
from pytest_passbench.core.escape import LINES, printable
from pytest_passbench.core.record import RAN, ArmResult, Speed
from pytest_passbench.judge.arms.failures import ArmFailure, HarnessFault, fault_line, is_fault
from pytest_passbench.judge.arms.names import AGAINST, CANDIDATE, EAGER, REFERENCE, TWIN
from pytest_passbench.judge.arms.template import Template
from pytest_passbench.judge.entries import pass_reports
from pytest_passbench.judge.trial.subject import Subject
from pytest_passbench.judge.verify.checker import Checker
from pytest_passbench.judge.witness import raise_if_fault


class Writer:
    """The writer of a subject's record. It decides what an arm's failure says, and of whom.

    ``culprits`` are the passes that the candidate's failures name.
    """

    def __init__(self, subject: Subject) -> None:
        self._subject, self._record = subject, subject.record
        self.culprits: frozenset[str] = frozenset()
        self._twin = ArmResult()  # a record has none of a second eager
        self._read_output = ""

    def result(self, arm: str) -> ArmResult:
        """Return the part of the record about ``arm``."""
        if arm == CANDIDATE:
            return self._record.arm
        if arm == REFERENCE and self._record.against is not None:
            return self._record.against.arm
        if arm == TWIN:
            return self._twin
        return self._record.baselines.setdefault(arm, ArmResult())

    def failed(self, arm: str, failure: ArmFailure, template: Template | None = None) -> None:
        """Write a failure into the record: eager's is the subgraph's own, others are the arm's.

        Raises HarnessFault for a failure that may be the machine's: that of eager's process, and in a first attempt
        that of a baseline's.
        """
        last, planners, auditor = self._subject.last, self._subject.planners, self._subject.auditor
        if is_fault(failure) and not (arm == REFERENCE and last):
            raise HarnessFault(fault_line(failure)) from failure
        if arm == EAGER:
            raise_if_fault(arm, failure)
            _mark(self._record.arm, "eager_fail", failure.phase, failure.message)
            return
        if arm not in (CANDIDATE, REFERENCE, TWIN) and failure.status == "crash" and not last:
            raise_if_fault(arm, failure)
        message = planners[arm].located(failure.message) if arm in planners else failure.message
        _mark(self.result(arm), failure.status, failure.phase, message)
        if arm == CANDIDATE:
            auditor.findings += failure.findings
            self.culprits |= failure.culprits
        if template is not None:
            self.printed(arm, template)

    def missed(self, arm: str, template: Template) -> None:
        """Write that no pass matched."""
        reports = pass_reports(template.report["passes"], uncounted=template.uncounted)
        _mark(self.result(arm), "pass_miss", "match", misses.message(reports))
        self.printed(arm, template)

    def printed(self, arm: str, template: Template) -> None:
        """Write what an arm has printed. The candidate's output includes that of reading its passes."""
        output = template.output()
        if arm == CANDIDATE:
            self._read_output = self._read_output or self._subject.planners[CANDIDATE].reader.output()
            output = self._read_output + output
        self.result(arm).output = output

    def speed(self, name: str, speed: Speed) -> None:
        """Write the speed of an arm over eager, or that of the candidate over its reference."""
        if name == AGAINST and self._record.against is not None:
            self._record.against.speed = speed
        else:
            self.result(name).speed = speed

    def answers(self, checker: Checker, templates: Mapping[str, Template]) -> None:
        """Write how right the answers of all arms were. ``templates`` are those of the arms that are left."""
        record = self._record
        record.null_from, record.dtypes = checker.null_from, checker.dtypes
        record.eager_error64 = checker.eager_errors
        record.null_accurate = bool(checker.eager_errors) and (checker.null_accurate or checker.accepts_left_out)
        for arm, standing in checker.standings.items():
            result, accuracy = self.result(arm), standing.accuracy
            result.error64 = accuracy.errors
            result.greatest_ratio64, result.mean_ratio64 = accuracy.greatest_ratios, accuracy.mean_ratios
            if standing.broken:
                result.greatest_ratio64 = [math.inf] * len(accuracy.greatest_ratios)
            result.correct_from, result.worst = standing.correct_from, standing.worst
            if standing.status != RAN:
                _mark(result, standing.status, "verify", standing.message)
            if arm in templates:
                self.printed(arm, templates[arm])
                if templates[arm].interpreted:
                    result.speed_note = "not measured (Triton's interpreter)"


def _mark(result: ArmResult, status: str, phase: str, message: str) -> None:
    result.status, result.phase, result.message = status, phase, printable(message, LINES)
    result.speed = None
