"""The judge of one process: takes the subgraphs of tasks through its sandboxes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from pytest_passbench.candidate.layout import Candidate
from pytest_passbench.core.device import is_cuda
from pytest_passbench.core.escape import LINES, printable
from pytest_passbench.core.record import HARNESS_FAIL, RAN, Against, ArmResult, Record
from pytest_passbench.core.settings import Settings
from pytest_passbench.core.task import Subgraph, Task
from pytest_passbench.judge import witness
from pytest_passbench.judge.arms import sandbox
from pytest_passbench.judge.arms.arm import Arm
from pytest_passbench.judge.arms.failures import ArmFailure
from pytest_passbench.judge.arms.faults import FAULTS, HarnessFault, fault_line, is_fault
from pytest_passbench.judge.arms.names import CANDIDATE, EAGER, REFERENCE, TWIN
from pytest_passbench.judge.audits import layers
from pytest_passbench.judge.audits.auditor import Auditor
from pytest_passbench.judge.baselines import Baselines, put
from pytest_passbench.judge.bench import Bench
from pytest_passbench.judge.builder.build import Builder
from pytest_passbench.judge.builder.store import cache_folder
from pytest_passbench.judge.builder.triton_build import TritonBuilder
from pytest_passbench.judge.case import Case, keep_found, smallest
from pytest_passbench.judge.deadline import Deadline
from pytest_passbench.judge.devices import max_slots
from pytest_passbench.judge.environment import environment
from pytest_passbench.judge.inputs import chosen
from pytest_passbench.judge.machine.awake import Awake
from pytest_passbench.judge.machine.cores import Cores
from pytest_passbench.judge.machine.gpu import HeldOpen
from pytest_passbench.judge.machine.heap import give_back
from pytest_passbench.judge.measure.allowance import AGAIN, DEFAULT, QUICK, Budget
from pytest_passbench.judge.measure.floor import Noise
from pytest_passbench.judge.programs import Programs
from pytest_passbench.judge.reading.planning import Planner
from pytest_passbench.judge.reading.readings import Readings
from pytest_passbench.judge.reference import Reference
from pytest_passbench.judge.sandboxes import Sandboxes
from pytest_passbench.judge.stopwatch import Stopwatch
from pytest_passbench.judge.subject import Subject
from pytest_passbench.judge.touching import Touched, matches
from pytest_passbench.protocol import Order
from pytest_passbench.suite.build import check_graphs
from pytest_passbench.suite.limits import check_memory
from pytest_passbench.suite.taskfile import task_hash
from pytest_passbench.timing.looks import HALF_WIDTH, HEAD_TO_HEAD_HALF_WIDTH, Stopping
from pytest_passbench.timing.measurement import Arms

AGAIN_SHARE = 0.75  # of a candidate's time that must be left to measure again, which takes longer than the first time
RETRY = "retry"  # the name of a second attempt
#: A function that judges a case, given the name of the attempt. Raises one of FAULTS.
Attempt = Callable[[str], tuple[Record, Subject | None]]


class Session:
    """A judge of tasks for candidates, and a context manager; its sandboxes end with it.

    ``expected`` is the number of subgraphs that it will be asked for, as far as its caller knows: a budget is spread
    over them. If it is ``thorough``, the machine's noise (eager against eager) is found out on the way. If it also
    ``repeats``, subgraphs whose verdict noise kept open are measured again.
    """

    def __init__(self, settings: Settings, seed: bytes, worker: int = 0) -> None:
        """``worker`` tells parallel judges apart, from 0. Raises UserError if this machine has no sandbox."""
        self.settings, self._seed = settings, seed
        self.expected, self.thorough, self.repeats = 0, True, True
        self._broken = False  # the last subgraph could not be judged: the witness goes first
        self._walls = sandbox.require(settings.sandbox)
        self._cores = Cores.choose(settings.threads, worker)
        self._awake = Awake(self._cores.arms)
        self._budget, self._noise = Budget(settings.budget), Noise()
        self._baselines, self._programs = Baselines(), Programs()
        self._turns: Counter[tuple[str, str, str]] = Counter()  # how often each case was asked for
        self._held_open = HeldOpen() if is_cuda(settings.device) else None
        self._sandboxes = Sandboxes(settings, self._walls)
        builder, triton = Builder(self._walls, cache_folder()), TritonBuilder(self._walls, cache_folder())
        self._readings = Readings(settings.policy, builder, triton, self._sandboxes.start_reading)
        self._reference: Reference | None = None
        if settings.against is not None:
            others = Readings(settings.policy, builder, triton, self._sandboxes.start_reading)
            self._reference = Reference(Candidate.open(settings.against), others)
        self._threads: int | None = torch.get_num_threads()  # the caller's
        torch.set_num_threads(1)  # the judge has one core to itself, the arms have the others

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End every sandbox, and give the caller's process its number of torch threads back."""
        self._close_sandboxes()
        self._awake.close()
        if self._held_open is not None:
            self._held_open.close()
        if self._threads is not None:
            torch.set_num_threads(self._threads)
            self._threads = None

    def _close_sandboxes(self) -> None:
        self._readings.close()
        if self._reference is not None:
            self._reference.readings.close()
        self._programs.close()
        self._sandboxes.close()

    def begin(self, seed: bytes) -> None:
        """Begin a run of its own, with a secret and a budget of its own, in the sandboxes of the run before.

        Unless it ``repeats``, subgraphs are measured in less time than in a run of its own.
        These stay: the sandboxes without any process of a candidate's, eager's built programs, the baselines'
        results, and what is known of the machine's noise. Whatever a candidate's code has touched is ended or
        removed. Sandboxes that are missing start in the background.
        """
        self._seed, self.expected = seed, 0
        self._budget = self._budget.renewed(DEFAULT if self.repeats else QUICK)
        self._baselines.of_others()
        self._turns.clear()
        self._readings.begin()
        if self._reference is not None:
            self._reference.readings.begin()
        self.start()

    def start(self) -> None:
        """Start the sandboxes that are missing, in the background. From now on, eager's programs are kept."""
        self._programs.kept = not is_cuda(self.settings.device)  # a device's template becomes its runner
        self._readings.arm()
        self._arms()

    def environment(self) -> dict[str, Any]:
        """Return where the run takes place, JSON-ready (docs/results.md)."""
        return environment(self.settings, self._walls, self._cores)

    def noise(self) -> dict[str, Any]:
        """Return what eager against eager showed of this machine so far, JSON-ready (docs/results.md)."""
        return self._noise.to_json()

    def selected(self, task: Task, candidate: Candidate) -> tuple[Subgraph, ...]:
        """Return all subgraphs; if Triton's interpreter runs the candidate, the smallest one of each dtype."""
        if is_cuda(self.settings.device) or not candidate.uses_triton:
            return task.subgraphs
        return smallest(task, lambda subgraph: subgraph.dtype)

    def touches(self, task: Task, candidate: Candidate) -> bool:
        """Return True if a pass of the candidate matches the task, or if that cannot be told for a mistake in it.

        Raises UserError for a broken task.
        """
        try:
            return any(found.name for found in self.matches(task, candidate))
        except ArmFailure:
            return True

    def matches(self, task: Task, candidate: Candidate) -> Iterator[Touched]:
        """Yield each graph of the task with the first pass that matches it, or with the nearest miss.

        Raises UserError for a broken task, ArmFailure if a mistake in the candidate leaves that open.
        """
        passes = candidate.passes_for(task.id)
        if passes is None:
            return
        if passes.mistakes:
            raise ArmFailure("compile_fail", "load", passes.mistakes)
        read = self._readings.passes(candidate, passes)
        yield from matches(task, read, self._sandboxes.arms([CANDIDATE])[CANDIDATE])

    def judge(self, task: Task, candidate: Candidate) -> Iterator[Record]:
        """Yield a record per subgraph, as soon as it is judged. Raises UserError for a broken task only.

        If noise kept a verdict open, new processes measure the subgraph again at the end of the task. Its record is
        then yielded once more, and the later one counts.
        """
        check_graphs(task)
        hashed = task_hash(task)  # for all cases, since it takes milliseconds
        cases = [self._case(task, subgraph, candidate, hashed) for subgraph in self.selected(task, candidate)]
        for case in cases:
            check_memory(case.subgraph, task.path)
        self._budget.begin(len(cases), self.expected)
        noisy: list[Subject] = []
        for case in cases:
            attempt = partial(self._first, case)
            record, subject = self._tried(case, attempt) if case.fault() is None else attempt("")
            if subject is None:
                self._budget.skip()
            else:
                pairs = 0 if subject.measured is None else len(subject.measured.pairs)
                self._budget.done(record.durations, pairs, len(subject.orders))
            self._baselines.keep(case, record)
            if self.thorough and self.repeats and subject is not None and subject.noisy and record.arm.status == RAN:
                deadline = subject.bench.deadline
                if deadline.left() > AGAIN_SHARE * deadline.limit:
                    noisy.append(subject)
            yield record
        for first in noisy:
            if self._budget.spare(sum(first.record.durations.values())):
                record, _ = self._tried(first.case, partial(self._again, first))
                if record.judged:  # else what was found first stays
                    self._baselines.keep(first.case, record)
                    yield record
        noisy.clear()
        give_back()  # a task's tensors are gone, and nothing is timed now

    def _case(self, task: Task, subgraph: Subgraph, candidate: Candidate, hashed: str) -> Case:
        key = (task.id, subgraph.id, candidate.name)
        self._turns[key] += 1
        return Case(task, subgraph, candidate, self._turns[key] - 1, hashed)

    def _tried(self, case: Case, attempt: Attempt) -> tuple[Record, Subject | None]:
        """Return the result of an attempt at judging a case, or of a second one if a fault ended the first.

        A fault is the harness's only if it also comes with eager in the candidate's place. A candidate that could
        bring it about must gain nothing by it, so one that comes with the candidate alone is the candidate's crash.
        Each attempt has new processes.
        """
        said = self._witness(case) if self._broken else ""
        self._broken = bool(said)
        if said:
            return self._without_result(case, HARNESS_FAIL, said), None
        for name in ("", RETRY):
            try:
                return attempt(name)
            except ArmFailure as failure:  # its reader went while its arms started
                return self._without_result(case, failure.status, printable(failure.message, LINES)), None
            except FAULTS as fault:
                said = fault_line(fault)
            without = self._witness(case)
            if without:
                self._broken = True
                return self._without_result(case, HARNESS_FAIL, without), None
        message = f"beside the candidate, twice, and not with eager in its place: {said}"
        return self._without_result(case, "crash", message), None

    def _without_result(self, case: Case, status: str, message: str) -> Record:
        record = case.record()
        record.arm = ArmResult(status, "harness", message)
        return record

    def _witness(self, case: Case) -> str:
        """Run eager in the candidate's place too, in new sandboxes. Return the fault that comes, or an empty string.

        No code of the candidate runs. So the sandboxes serve the next attempt.
        """
        try:
            self._close_sandboxes()
            reading, arms = self._readings.arm(), self._arms()
            for arm in (reading, *arms.values()):
                arm.ready()
            phases, deadline = Stopwatch({}), Deadline(self.settings.timeout)
            secret = case.secret(self._seed, "witness")
            bench = Bench.of(case, secret, self._cores, self._awake, phases, deadline, self.settings.tolerance)
            order = case.orders(self.settings, [EAGER], ())[EAGER]
            both = {name: arms[name] for name in (EAGER, CANDIDATE)}
            witness.run(order, both, bench, self._cores.locks(self.settings.device))
        except FAULTS as fault:
            return fault_line(fault)
        return ""

    def _first(self, case: Case, attempt: str) -> tuple[Record, Subject | None]:
        """Judge a case for the first time. Raises one of FAULTS."""
        record, deadline = self._record(case), Deadline(self.settings.timeout)
        fault = case.fault() or self._read(case, record, deadline)
        if fault is not None:
            record.arm = fault
            self._complete(record)
            return record, None
        subject = self._judged(case, record, deadline, attempt)
        deadline.pause()  # until it is measured again, if it is
        return record, subject

    def _record(self, case: Case) -> Record:
        record = case.record()
        if self._reference is not None:
            record.against = Against()
        return record

    def _complete(self, record: Record) -> None:
        if self._reference is not None:
            self._reference.after(record)

    def _read(self, case: Case, record: Record, deadline: Deadline) -> ArmResult | None:
        """Have the candidate's passes read. Return what speaks against running them, if anything does."""
        phases = Stopwatch(record.durations)
        with phases("start"), deadline.paused():
            reading = self._readings.arm()
            reading.deadline = deadline
            others = [self._reference.readings.arm()] if self._reference is not None else []
            self._arms()  # they start beside it
            for starting in (reading, *others):
                starting.ready()
        with phases("read"):
            try:
                passes = self._readings.passes(case.candidate, case.passes)
            except ArmFailure as failure:
                if is_fault(failure):
                    raise HarnessFault(fault_line(failure)) from failure
                return ArmResult(failure.status, failure.phase, printable(failure.message, LINES))
        if passes or not case.passes.stems:
            return None
        return ArmResult("integrity", "disqualified", "its passes broke a rule on another subgraph of the run")

    def _judged(
        self, case: Case, record: Record, deadline: Deadline, attempt: str, earlier: Arms | None = None
    ) -> Subject:
        """Take a case through build, probe and measurement. ``earlier`` is a measurement to be continued."""
        phases = Stopwatch(record.durations)
        with phases("start"), deadline.paused():
            chosen()  # compiled when it is first asked for
            arms = self._arms()
            arms[CANDIDATE].deadline = deadline
            for arm in arms.values():
                arm.ready()
        with phases("other"):
            subject = self._subject(case, record, arms, phases, deadline, attempt, earlier)
            known = subject.built
            subject.judge()
            if subject.built is not known and subject.built is not None:
                self._programs.keep(case, subject.built)
            put(self._baselines.beside_others(case), record)
            self._complete(record)
            if subject.measured is not None:
                self._noise.add(subject.measured, case.subgraph.elements)
        if record.arm.status == "integrity":
            self._readings.caught(case.candidate, case.passes, set(subject.culprits) or layers.culprits(record))
        if record.arm.status in ("crash", "timeout", "integrity") and record.arm.phase in ("wrapper", "plan", "load"):
            self._readings.forget()  # a reader that gave no answer is replaced
        return subject

    def _again(self, first: Subject, attempt: str) -> tuple[Record, Subject | None]:
        """Measure a case again. What the first measurement found stays found. Raises one of FAULTS."""
        record, deadline = self._record(first.case), first.bench.deadline
        with deadline.running():
            self._measured_again(first, record, deadline, attempt)
        keep_found(record, first.record)
        return record, None

    def _measured_again(self, first: Subject, record: Record, deadline: Deadline, attempt: str) -> None:
        record.findings = list(first.record.findings)
        fault = self._read(first.case, record, deadline)
        if fault is None:
            self._judged(first.case, record, deadline, attempt, first.measured)
        else:
            record.arm = fault
            self._complete(record)

    def _subject(
        self,
        case: Case,
        record: Record,
        arms: dict[str, Arm],
        phases: Stopwatch,
        deadline: Deadline,
        attempt: str,
        earlier: Arms | None,
    ) -> Subject:
        with phases("read"):
            planners = self._planners(case)
        orders = self._orders(case, arms, self._readings.passes(case.candidate, case.passes))
        if self._reference is not None and record.against is not None:
            with phases("read"), deadline.paused():
                read = self._reference.read(case, attempt == RETRY)
            if isinstance(read, ArmResult):
                record.against.arm = read
                orders.pop(REFERENCE)
            else:
                planners[REFERENCE] = read[0]
                orders[REFERENCE] = replace(orders[CANDIDATE], passes=read[1])
        if earlier is not None or not self._noise.wants(case.subgraph.elements):
            orders.pop(TWIN, None)
        for name in self._baselines.beside_others(case).arms:
            orders.pop(name, None)
        allowance = self._budget.allowance(len(orders)) if earlier is None else AGAIN
        secret = case.secret(self._seed, ("again" if earlier is not None else "") + attempt)
        keeps = self._programs.kept and earlier is None
        built = self._programs.of(case, arms[EAGER]) if keeps else None
        pages, slots = None if built is None else built.pages, max_slots(self.settings.device)
        t = self.settings.tolerance
        bench = Bench.of(case, secret, self._cores, self._awake, phases, deadline, t, pages, slots)
        return Subject(
            case=case,
            record=record,
            orders=orders,
            planners=planners,
            arms=arms,
            bench=bench,
            locks=self._cores.locks(self.settings.device),
            stopping=self._stopping(allowance.pairs),
            allowance=allowance,
            auditor=Auditor(self.settings, bench, arms[CANDIDATE]),
            earlier=earlier,
            last=attempt == RETRY,
            built=built,
            keeps=keeps,
        )

    def _stopping(self, pairs: int) -> Stopping:
        """Return when to stop measuring. A ratio to a reference is often near delta, so it may take longer."""
        noise = self._noise
        delta, width = (
            (noise.delta, HALF_WIDTH)
            if self._reference is None
            else (noise.head_to_head_delta, HEAD_TO_HEAD_HALF_WIDTH)
        )
        return Stopping(delta, width, max_pairs=pairs, correlation=noise.correlation)

    def _planners(self, case: Case) -> dict[str, Planner]:
        """Return the planner of each arm that has passes. Raises ArmFailure. Some benchmarks give eager one."""
        return {CANDIDATE: self._readings.planner(case.candidate, case.passes)}

    def _orders(self, case: Case, arms: dict[str, Arm], passes: tuple[dict[str, Any], ...]) -> dict[str, Order]:
        """Return the program of each arm. The benchmarks exchange some: eager for the candidate, for example."""
        return case.orders(self.settings, arms, passes)

    def _arms(self) -> dict[str, Arm]:
        """Return the sandboxes of this run's arms. For one subgraph alone, a twin would cost more than it tells."""
        lasting = self._programs.kept or self._budget.expected > 1
        twin = [TWIN] if self.thorough and lasting else []
        reference = [REFERENCE] if self._reference is not None else []
        return self._sandboxes.arms((EAGER, CANDIDATE, *reference, *self.settings.baselines, *twin))
