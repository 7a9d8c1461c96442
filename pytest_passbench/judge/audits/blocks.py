"""Extra blocks that look like any other to a candidate: in refilled memory, and with nearly repeated inputs.

They run in an extra runner of the candidate, and in eager's present one. The first block has fresh inputs. Before the
second one, a small part of each input changes at the same addresses. A program that answers from a sample of its
inputs, or by their address, is now wrong by far. A kernel that rounds differently is wrong by little; that counts
like any verified call, and is not a violation.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

import torch

from pytest_passbench.core.record import RAN, Finding
from pytest_passbench.judge.arms.forks import blaming
from pytest_passbench.judge.arms.names import CANDIDATE, EAGER
from pytest_passbench.judge.arms.runner import Runner
from pytest_passbench.judge.arms.template import ForkOrder
from pytest_passbench.judge.audits.findings import violation
from pytest_passbench.judge.bench import Bench
from pytest_passbench.judge.inputs import Batch
from pytest_passbench.judge.measure.cpu_clock import CpuClock
from pytest_passbench.judge.verify.compare import compare
from pytest_passbench.judge.verify.outputs import Output, read_call
from pytest_passbench.judge.verify.standing import ROUNDING_LEVELS, Standing, explained_by_rounding

BLOCK_SECONDS, MAX_CALLS = 0.005, 4
VERIFIED_CALLS = 2  # of each block
CHANGED_PART = 64  # one part in so many of each input is changed
INTEGER_SHARE = 1 / 512  # of an integer output that rounding may flip: far less than what a stale answer has wrong


@dataclass
class Blocks:
    """The extra blocks of a subgraph. ``standing`` is the candidate's, from calls verified before and in them."""

    clock: CpuClock
    bench: Bench
    standing: Standing

    def __post_init__(self) -> None:
        self._rng = self.bench.secret.stream("audit")

    def run(self, per_call: float) -> list[Finding]:
        """Return the findings of a pair of blocks. ``per_call`` is in seconds. Raises ArmFailed if an arm fails."""
        calls = max(1, min(self.clock.calls, MAX_CALLS, int(BLOCK_SECONDS / max(per_call, 1e-6))))
        with closing(self.clock.fork_one(CANDIDATE, ForkOrder(self.clock.program, calls, audit=True))) as runner:
            return self._both({EAGER: self.clock.runners[EAGER], CANDIDATE: runner}, calls)

    def _both(self, runners: dict[str, Runner], calls: int) -> list[Finding]:
        batch = self.bench.inputs.draw(calls)
        self.bench.inputs.write(batch, self.bench.pages)
        findings = self._block(runners, calls, "in memory that held other values before")
        self._change_a_part(batch)
        where = "for inputs that differ little from those before, at the same addresses"
        return findings + self._block(runners, calls, where)

    def _block(self, runners: dict[str, Runner], calls: int, where: str) -> list[Finding]:
        """Run a block of each arm on the present contents of the pages, and return its findings.

        An arm's writes to its inputs go to pages of its own, so the other arm does not see them.
        """
        for arm in (EAGER, CANDIDATE):
            with blaming(arm), self.bench.deadline.paused(arm != CANDIDATE):
                runners[arm].block(calls)
        verified = self._rng.sample(range(calls), min(VERIFIED_CALLS, calls))
        return [finding for call in verified for finding in self.compared(runners, call, where)][:1]

    def _change_a_part(self, batch: Batch) -> None:
        """Write new values into a small part of every input of every call."""
        other = self.bench.inputs.draw(batch.calls)
        for slot in range(batch.calls):
            for index, value in enumerate(self.bench.inputs.call(other, slot)):
                values, width = value.flatten(), value.element_size()
                if values.numel():
                    size = max(1, values.numel() // CHANGED_PART)
                    start = self._rng.randrange(values.numel() - size + 1)
                    place = self.bench.pages.addresses[index][slot] + start * width
                    ctypes.memmove(place, values[start : start + size].data_ptr(), size * width)

    def compared(self, runners: Mapping[str, Runner], call: int, where: str) -> list[Finding]:
        """Return a finding if outputs of a call are wrong that were right in other calls. Raises ArmFailed."""
        outputs: dict[str, list[Output]] = {}
        for arm in (EAGER, CANDIDATE):
            with blaming(arm):
                outputs[arm] = read_call(runners[arm], call, outputs.get(EAGER, ()))
        names = [f"output {index}" for index in range(len(outputs[EAGER]))]
        expected, answer = outputs[EAGER], outputs[CANDIDATE]
        verdict = compare(expected, answer, self.bench.tolerance, names)
        if verdict.status not in (RAN, "nan_inf"):
            return [violation("outputs", "form", f"{verdict.message}, {where} only")]
        accurate, t = self.standing.accuracy.accurate, self.bench.tolerance
        levels = enumerate(zip(verdict.correct_from, self.standing.correct_from, strict=False))
        right = [(output, now, before) for output, (now, before) in levels if before <= t or accurate]
        new = [output for output, now, before in right if now > max(t, before) + ROUNDING_LEVELS]
        wrong = [output for output in new if beyond_rounding(expected[output].value, answer[output].value)]
        if not wrong:
            self.standing.add(verdict)
            return []
        message = f"output {wrong[0]} is wrong {where}: {verdict.worst or verdict.message}"
        return [violation("outputs", "differs", message)]


def beyond_rounding(expected: torch.Tensor | None, actual: torch.Tensor | None) -> bool:
    """Return True if an element is further off than rounding explains, or is NaN or infinite unlike eager's.

    Outputs without values and complex ones count as further off. Rounding may also flip a comparison: of integers,
    one or :data:`INTEGER_SHARE` of all may differ.
    """
    if expected is None or actual is None or expected.is_complex() or expected.numel() == 0:
        return True
    if not expected.is_floating_point():
        return bool((expected != actual).sum() > max(1, INTEGER_SHARE * expected.numel()))
    return not bool(explained_by_rounding(expected, actual).all())
