"""The templates of a subgraph's arms, from their fork to their end."""

from __future__ import annotations

from dataclasses import replace

from pytest_passbench.judge.arms.failures import ArmFailure
from pytest_passbench.judge.arms.forks import ArmFailed, blaming
from pytest_passbench.judge.arms.names import CANDIDATE, EAGER, FLOAT64
from pytest_passbench.judge.arms.template import Template
from pytest_passbench.judge.devices import start_template
from pytest_passbench.judge.entries import pass_reports
from pytest_passbench.judge.programs import Built
from pytest_passbench.judge.trial.subject import Subject
from pytest_passbench.judge.trial.writer import Writer
from pytest_passbench.protocol import Order


class Templates:
    """The templates of a subject's arms. An arm that fails drops out, and the writer writes why.

    ``ready`` are those with a program, by arm. ``built`` are eager's that live on when the case has ended, if any do.
    ``interpreted``: Triton's interpreter runs kernels of the candidate's program.
    """

    def __init__(self, subject: Subject, writer: Writer) -> None:
        self._subject, self._writer = subject, writer
        self.ready: dict[str, Template] = {}
        self.built = subject.built
        self._forked: list[Template] = []
        self.interpreted = self._reference_lost = False

    def build(self) -> None:
        """Fork a template for each arm that has none, side by side, and wait until all have built their programs."""
        orders, bench = self._subject.orders, self._subject.bench
        with bench.deadline.paused():
            bench.inputs.write(bench.inputs.draw(1), bench.pages)
        if self.built is not None:
            self.ready.update(self.built.templates)
        started = {arm: self._start(arm) for arm in orders if arm not in self.ready}
        reference = self._start_reference() if started.get(EAGER) is not None else None
        for arm, template in started.items():
            if template is not None:
                with bench.deadline.paused(arm != CANDIDATE):
                    self._wait(arm, template)
        if reference is not None:
            with bench.deadline.paused():
                self._wait_reference(reference)
        # The same order, whether templates were kept or built now.
        self.ready = {arm: self.ready[arm] for arm in (*orders, FLOAT64) if arm in self.ready}

    def _start(self, arm: str) -> Template | None:
        try:
            return self._fork(arm, self._subject.orders[arm])
        except ArmFailure as failure:
            self._writer.failed(arm, failure)
            return None

    def _start_reference(self) -> Template | None:
        """Start eager in float64 in eager's sandbox, as the reference for rounding errors. Return None on failure."""
        try:
            return self._fork(EAGER, replace(self._subject.orders[EAGER], arm=FLOAT64))
        except ArmFailure:
            return None

    def _fork(self, arm: str, order: Order) -> Template:
        bench = self._subject.bench
        template = start_template(self._subject.arms[arm], order, bench.layout, bench.pages.fd)
        self._forked.append(template)
        return template

    def _wait(self, arm: str, template: Template) -> None:
        record, auditor = self._subject.record, self._subject.auditor
        try:
            with blaming(arm):
                report = template.wait(self._subject.planners.get(arm))
                if arm == CANDIDATE:
                    self._note_built(template)
        except ArmFailed as failed:
            self._writer.failed(arm, failed.failure, template)
            template.close()
            return
        if arm == CANDIDATE and auditor.violated:
            auditor.note(record)
            self._writer.printed(arm, template)
            template.close()
        elif report["missed"] or (template.uncounted and not _matches(template)):
            self._writer.missed(arm, template)
            template.close()
        else:
            self.ready[arm] = template

    def _note_built(self, template: Template) -> None:
        record, auditor = self._subject.record, self._subject.auditor
        items = template.report["passes"]
        record.passes = pass_reports(items, template.untuned, template.plans, template.uncounted)
        self.interpreted = template.interpreted
        with self._subject.bench.phases("audit"):
            auditor.findings += template.findings
            auditor.built(record)

    def _wait_reference(self, template: Template) -> None:
        try:
            template.wait()
            self.ready[FLOAT64] = template
        except ArmFailure:
            template.leave()  # the graph has no float64 form, so there are no rounding errors in the record

    def drop(self, failed: ArmFailed) -> None:
        """End the template of an arm that failed while it ran."""
        template = self.ready.pop(failed.arm)
        if failed.arm == FLOAT64:
            self._reference_lost = True
            template.leave()
        else:
            self._writer.failed(failed.arm, failed.failure, template)
            template.close()

    def drop_wrong(self, arm: str) -> None:
        """End the template of an arm whose answers no criterion accepts, since its speed would not count."""
        template = self.ready.pop(arm)
        self._writer.result(arm).speed_note = "not measured: the outputs are wrong"
        self._writer.printed(arm, template)
        template.close()

    def keep(self) -> None:
        """Let eager's programs live on, if they are to and none of them has failed."""
        lasting = {arm: self.ready[arm] for arm in (EAGER, FLOAT64) if arm in self.ready}
        if self._subject.keeps and self.built is None and EAGER in lasting and not self._reference_lost:
            for template in lasting.values():
                template.last()
            self.built = Built(self._subject.bench.pages, lasting)

    def close(self) -> None:
        """End all processes without waiting. They take a while to end, and the next subgraph waits for that."""
        for arm in self._subject.arms.values():
            arm.kill_children()
        lasting = [] if self.built is None else list(self.built.templates.values())
        for template in self._forked:
            if template not in lasting:
                template.leave()
        if self.built is None:
            self._subject.bench.pages.close()


def _matches(template: Template) -> bool:
    """Return True if a pass has a match that counts."""
    return any(report.matches for report in pass_reports(template.report["passes"], uncounted=template.uncounted))
