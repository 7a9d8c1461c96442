"""Extra blocks that look like any other: poisoned memory, inputs nearly as before.

A runner of the candidate that its template made for the purpose, and the last of eager's. The first block has fresh
inputs; before the second, a small part of each input changes at the same addresses: who answers from a sample of the
contents, or by address, is wrong now: by far, where a kernel that rounds differently is wrong by little. That is no
cheating, but an answer like any other that was verified.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch

from pytest_passbench.core.record import RAN, Finding
from pytest_passbench.judge.arms.forks import blaming, fork_all
from pytest_passbench.judge.arms.names import CANDIDATE, EAGER
from pytest_passbench.judge.arms.runner import Runner
from pytest_passbench.judge.arms.template import Effects, Template
from pytest_passbench.judge.audits.beyond import Beyond
from pytest_passbench.judge.audits.layers import violation
from pytest_passbench.judge.bench import Bench
from pytest_passbench.judge.inputs import Batch
from pytest_passbench.judge.verify.checker import Standing
from pytest_passbench.judge.verify.compare import Comparison, compare
from pytest_passbench.judge.verify.outputs import Output, read_call

BLOCK_SECONDS, MAX_CALLS = 0.005, 4
VERIFIED_CALLS = 2  # calls of a block
CHANGED_PART = 64  # one part of an input in so many is changed
ROUNDING_LEVELS = 2  # levels of t by which an honest kernel may miss a tolerance that it met in other calls
#: And units of its dtype's precision, of the element or of the output's median: in bfloat16 a logit's rounding is a
#: seventh of a probability.
ROUNDING_UNITS = 32
#: An address in the judge's pages, and the values that go there.
Change = tuple[int, torch.Tensor]


@dataclass
class Blocks:
    """What the extra blocks need.

    ``eager`` is a runner for blocks of up to ``most`` calls. ``standing`` is the candidate's, from calls verified
    before and in these blocks. ``thorough`` asks about all inputs beyond the recorded ones.
    """

    template: Template
    eager: Runner
    most: int
    program: Effects
    bench: Bench
    standing: Standing
    thorough: bool

    def __post_init__(self) -> None:
        self._rng = self.bench.secret.stream("audit")

    def run(self, per_call: float, beyond: bool) -> list[Finding]:
        """Findings of one pair of blocks. Raises ArmFailed where an arm fails in them.

        With ``beyond`` both are then asked about inputs beyond the recorded ones.
        """
        calls = max(1, min(self.most, MAX_CALLS, int(BLOCK_SECONDS / max(per_call, 1e-6))))
        with self.bench.awake.off():
            forked = fork_all({CANDIDATE: self.template}, self.program, calls, self.bench.cores, audited=[CANDIDATE])
        try:
            runners = {EAGER: self.eager, **forked}
            found = self._both(runners, calls)
            if beyond and not found:
                asked = Beyond(self.bench, self.standing, self.thorough)
                asked.run(runners)
            return found
        finally:
            forked[CANDIDATE].close()

    def _both(self, runners: dict[str, Runner], calls: int) -> list[Finding]:
        batch = self.bench.inputs.draw(calls)
        self.bench.inputs.write(batch, self.bench.pages)
        found = self._block(runners, calls, "in memory that held other values before")
        for place, data in self._changes(batch):
            ctypes.memmove(place, data.data_ptr(), data.numel() * data.element_size())
        where = "for inputs that differ little from those before, at the same addresses"
        return found + self._block(runners, calls, where)

    def _block(self, runners: dict[str, Runner], calls: int, where: str) -> list[Finding]:
        """A block of each arm, of what the pages hold: neither's writes to them are seen by anyone else."""
        for arm in (EAGER, CANDIDATE):
            with blaming(arm):
                runners[arm].block(calls)
        chosen = self._rng.sample(range(calls), min(VERIFIED_CALLS, calls))
        return [finding for call in chosen for finding in self._compared(runners, call, where)][:1]

    def _changes(self, batch: Batch) -> list[Change]:
        """New values for a small part of every input of every call, and where they go."""
        other = self.bench.inputs.draw(len(batch))
        changes: list[Change] = []
        for slot in range(len(batch)):
            for index, value in enumerate(self.bench.inputs.call(other, slot)):
                values = value.flatten()
                if values.numel():
                    size = max(1, values.numel() // CHANGED_PART)
                    start = self._rng.randrange(values.numel() - size + 1)
                    place = self.bench.pages.addresses[index][slot] + start * values.element_size()
                    changes.append((place, values[start : start + size]))
        return changes

    def _compared(self, runners: dict[str, Runner], call: int, where: str) -> list[Finding]:
        outputs: dict[str, list[Output]] = {}
        for arm in (EAGER, CANDIDATE):
            with blaming(arm):
                outputs[arm] = read_call(runners[arm], call, outputs.get(EAGER, ()))
        names = [f"output {index}" for index in range(len(outputs[EAGER]))]
        ours, theirs = outputs[EAGER], outputs[CANDIDATE]
        verdict = compare(ours, theirs, self.bench.tolerance, names)
        if verdict.status not in (RAN, "nan_inf"):
            return [violation("outputs", "form", f"{verdict.message}, {where} only")]
        wrong = [i for i in self._far_off(verdict) if beyond_rounding(ours[i].value, theirs[i].value)]
        if not wrong:
            self.standing.add(verdict)
            return []
        said = f"output {wrong[0]} is wrong {where}: {verdict.worst or verdict.message}"
        return [violation("outputs", "differs", said)]

    def _far_off(self, verdict: Comparison) -> list[int]:
        """Outputs that were within the tolerance before, and are now wrong by more than rounding."""
        levels = enumerate(zip(verdict.correct_from, self.standing.correct_from, strict=False))
        far = self.bench.tolerance + ROUNDING_LEVELS
        return [output for output, (now, before) in levels if before <= self.bench.tolerance and now > far]


def beyond_rounding(expected: torch.Tensor | None, found: torch.Tensor | None) -> bool:
    """Whether an element is further off than rounding on the way explains, or is no number where eager's is one."""
    if expected is None or found is None or not expected.is_floating_point() or expected.numel() == 0:
        return True
    a, b = expected.double(), found.double()
    size = a.masked_fill(~a.isfinite(), 0.0).abs()
    usual = size[size > 0].median().nan_to_num(0.0)  # not the greatest, which may be a mask's
    near = (a - b).abs() <= ROUNDING_UNITS * torch.finfo(expected.dtype).eps * torch.maximum(size, usual)
    return not bool((near | (a == b) | (a.isnan() & b.isnan())).all())
