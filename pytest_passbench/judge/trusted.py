"""The session of ``--passbench-trusted``: the user's own candidate in this process, for a debugger, without a score.

There is no sandbox, no clock, and no secret input. Inputs that a graph changes in place are not compared. Exceptions
of the candidate pass through, so that ``--pdb`` stops at them.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import torch

from pytest_passbench.candidate.layout import Candidate
from pytest_passbench.core import misses
from pytest_passbench.core.plurals import counted
from pytest_passbench.core.record import ArmResult, Record
from pytest_passbench.core.settings import Settings
from pytest_passbench.core.task import Task
from pytest_passbench.judge.case import Case
from pytest_passbench.judge.inputs import Inputs
from pytest_passbench.judge.results import pass_reports
from pytest_passbench.judge.verify.compare import compare, null_from
from pytest_passbench.judge.verify.outputs import Output, OutputForm
from pytest_passbench.protocol import KIND_OTHER_TYPE, KIND_TENSOR
from pytest_passbench.reader import registrations
from pytest_passbench.reader.importing import load_passes
from pytest_passbench.reader.local import LocalKernels, as_passes
from pytest_passbench.rewrite.pipelines import build
from pytest_passbench.suite.build import build_graph
from pytest_passbench.suite.find import TaskRef

NOTE = "trusted: nothing is scored"


class TrustedSession:
    """A session with the methods of :class:`~pytest_passbench.run.judging.Judge`, and no guarantees."""

    def __init__(self, settings: Settings, seed: bytes) -> None:
        self.settings, self._seed = settings, seed
        self.expected = 0

    def close(self) -> None:
        """Do nothing: no process was started."""

    def touches(self, ref: TaskRef, candidate: Candidate) -> bool:
        """Return True if the candidate has passes for the task. They are not matched."""
        return candidate.passes_for(ref.id) is not None

    def noise(self) -> dict[str, Any]:
        """Return an empty dictionary, since no time is measured."""
        return {}

    def environment(self) -> dict[str, Any]:
        """Return the machine and the versions of the run: JSON-ready."""
        return {
            "sandbox": "none (trusted)",
            "device": self.settings.device,
            "threads": torch.get_num_threads(),
            "python": platform.python_version(),
            "torch": torch.__version__,
        }

    def judge(self, task: Task, candidate: Candidate) -> Iterator[Record]:
        """Yield a record for each subgraph, with correctness only. Raises any exception that the candidate raises."""
        for subgraph in task.subgraphs:
            case = Case(task, subgraph, candidate, self.settings.pipeline, self._seed)
            record, fault = case.record(), case.fault
            if fault is None:
                self._judge(record, case)
            else:
                record.arm = fault
            record.arm.speed_note = NOTE
            yield record

    def _judge(self, record: Record, case: Case) -> None:
        task, subgraph, passes = case.task, case.subgraph, case.passes
        inputs = Inputs(subgraph.inputs, case.secret("trusted").key("inputs"))
        values = [value.to(self.settings.device) for value in inputs.call(inputs.draw(1), 0)]
        module = build_graph(task.graphs[subgraph.graph], task.path.name, device=self.settings.device)
        with torch.no_grad():
            expected = module(*[value.clone() for value in values])
            if "inductor" in passes.kinds:
                registrations.install()
            loaded = load_passes(passes.path, list(passes.stems))
            built = build(self.settings.pipeline, module, as_passes(loaded), values, LocalKernels(loaded))
            matched = {item.name for item in built.reports if item.matches}
            idle = dict.fromkeys(matched - built.working, misses.NO_WORK)
            record.passes = pass_reports((asdict(report) for report in built.reports), uncounted=idle)
            if not built.working:
                record.arm = ArmResult("pass_miss", "match", misses.message(record.passes))
                return
            outputs = built.call(*[value.clone() for value in values])
        self._compare(record, _outputs(expected), _outputs(outputs), values)

    def _compare(
        self, record: Record, expected: list[Output], actual: list[Output], values: list[torch.Tensor]
    ) -> None:
        if len(expected) != len(actual):
            record.arm.status = "type_mismatch"
            record.arm.message = f"eager returns {counted(len(expected), 'output')}, the candidate {len(actual)}"
            return
        names = [f"output {index}" for index in range(len(expected))]
        verdict = compare(expected, actual, self.settings.tolerance, names)
        record.dtypes = [output.form.dtype for output in expected]
        record.null_from = null_from(expected, [value.cpu() for value in values])
        record.arm.status, record.arm.message = verdict.status, verdict.message
        record.arm.correct_from, record.arm.worst = verdict.correct_from, verdict.worst


def _outputs(values: object) -> list[Output]:
    return [_output(value) for value in (values if isinstance(values, tuple) else (values,))]


def _output(value: Any) -> Output:
    if type(value) is not torch.Tensor:
        return Output(OutputForm(KIND_OTHER_TYPE, "", "", (), ()), 0, None)
    dtype = str(value.dtype).removeprefix("torch.")
    # The comparison is on the CPU for all devices.
    form = OutputForm(KIND_TENSOR, dtype, value.device.type, tuple(value.shape), tuple(value.stride()))
    return Output(form, value.data_ptr(), value.detach().cpu())
