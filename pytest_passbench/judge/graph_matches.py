"""The graphs of tasks that a candidate's passes match, without ``torch.compile``. No kernel is compiled or run.

Two processes in a sandbox match the graphs in turn, with inputs of zeros. The results are stored on disk. Their key
is made of the contents of the task and the candidate, and of the versions of this package and of torch.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from importlib import metadata
from typing import Any

from pytest_passbench.candidate.layout import Candidate, PassDir
from pytest_passbench.core import misses
from pytest_passbench.core.harness import harness_hash
from pytest_passbench.core.settings import Policy
from pytest_passbench.core.task import Subgraph, Task
from pytest_passbench.judge.arms import replies
from pytest_passbench.judge.arms.arm import Arm
from pytest_passbench.judge.arms.failures import ArmFailure, ending
from pytest_passbench.judge.arms.wire import hear
from pytest_passbench.judge.builder.store import ContentStore, cache_folder
from pytest_passbench.judge.case import smallest
from pytest_passbench.judge.planning.candidate_readers import CandidateReaders
from pytest_passbench.judge.results import pass_reports
from pytest_passbench.protocol import send
from pytest_passbench.suite.build import check_graphs
from pytest_passbench.suite.find import TaskRef
from pytest_passbench.suite.limits import check_memory

PROCESSES = 2
MAX_REGION_REQUESTS = 256  # for one graph


@dataclass(frozen=True)
class GraphMatch:
    """A graph of a task, the number of ``subgraphs`` that have it, and the name of the first pass that matches it.

    If no pass matches, ``name`` is empty, and ``miss`` says what kept the nearest pass from matching.
    """

    graph: str
    subgraphs: int
    name: str = ""
    miss: str = ""


class Matcher:
    """A process in a candidate's sandbox that matches passes, as data. ``regions`` asks a region pass for regions."""

    def __init__(
        self, arm: Arm, passes: tuple[dict[str, Any], ...], regions: Callable[[str, str], list[list[str]]]
    ) -> None:
        """Have the process forked. Raises ArmFailure."""
        #: ``busy``: it works on a graph, and nobody has read the answer yet. ``lost``: it is of no further use.
        self.busy = self.lost = False
        self._arm, self._regions = arm, regions
        order = {"op": "matcher", "passes": list(passes), "device": arm.settings.device}
        self._channel, self._log, _number = arm.fork(order)

    def begin(self, task: Task, subgraph: Subgraph) -> None:
        """Have a graph matched. Raises UserError for a subgraph that is too large, ArmFailure as :meth:`end` does."""
        check_memory(subgraph, task.path)
        inputs = [(spec.shape, spec.dtype) for spec in subgraph.inputs]
        order = {"source": task.graphs[subgraph.graph], "origin": str(task.path), "inputs": inputs}
        with self._talking():
            send(self._channel, order)
        self.busy = True

    def end(self) -> tuple[str, str]:
        """Return the name of the first pass that matches the graph, and, if none does, what kept them from it.

        Raises ArmFailure if a pass is at fault, or if the process gives no answer and so is lost.
        """
        self.busy = False
        with self._talking():
            answer, failure = self._answer()
        if answer["status"] == "matched":
            return str(answer["name"]), ""
        if answer["status"] != "missed":
            raise failure or ArmFailure(answer["status"], answer["phase"], answer["message"])
        reports = pass_reports(answer["passes"])
        name = next((item.name for item in reports if item.matches), "")
        return name, "" if name else misses.message(reports).partition("\n")[0].rstrip(";")

    @contextlib.contextmanager
    def _talking(self) -> Iterator[None]:
        """Turn errors of the channel within this context into ArmFailure. After any error the process is lost."""
        self._channel.settimeout(self._arm.patience("match"))
        self.lost = True
        who = "the process that matches the candidate's passes"
        with self._arm.answering("match", lambda: ending(self._arm.reap(), who)):
            yield
        self.lost = False

    def _answer(self) -> tuple[dict[str, Any], ArmFailure | None]:
        """Return the answer on a graph, with the failure of a region pass that raises."""
        failure = None
        for _ in range(MAX_REGION_REQUESTS):
            answer: dict[str, Any] = hear(self._channel, replies.MATCHED, "match")
            if answer["status"] != "regions":
                return answer, failure
            regions = None
            try:
                regions = self._regions(answer["name"], answer["graph"])
            except ArmFailure as error:
                if error.status != "runtime_fail":  # the reader is gone
                    raise
                failure = error
            send(self._channel, {"regions": regions})
        message = f"the matching process asks for the regions of one graph more than {MAX_REGION_REQUESTS} times"
        raise ArmFailure("integrity", "match", message)

    def close(self) -> None:
        self._channel.close()
        self._log.close()
        self._arm.end_children()


class Matching:
    """The matches of candidates' passes with tasks' graphs. Those of one pass directory at a time are in memory.

    ``arm`` returns the candidate's sandbox. It is called only for a graph without a stored result.
    """

    def __init__(self, policy: Policy, device: str, readers: CandidateReaders, arm: Callable[[], Arm]) -> None:
        self._identity, self._readers, self._arm = (policy, device), readers, arm
        self._store = ContentStore(cache_folder())
        self._key, self._stored = "", b"{}"
        #: By a task's content hash: the number of its graphs, and the matches of those that were tried so far.
        self._tasks = dict[str, tuple[int, list[GraphMatch]]]()
        self._matchers: list[Matcher] = []

    def of(self, ref: TaskRef, candidate: Candidate) -> Iterator[GraphMatch]:
        """Yield each graph of the task, the smallest first, with the first pass that matches it.

        Raises UserError for a broken task, ArmFailure if a mistake in the candidate prevents an answer.
        """
        passes = candidate.passes_for(ref.id)
        if passes is None:
            return
        if passes.mistakes:
            raise ArmFailure("compile_fail", "load", passes.mistakes)
        tasks, digest = self._of_passes(candidate, passes), ref.content_hash()
        if digest in tasks:
            graphs, matches = tasks[digest]
            yield from list(matches)
            if len(matches) == graphs:
                return
        task = ref.load()
        subgraphs = smallest(task, lambda subgraph: subgraph.graph)
        counts = Counter(subgraph.graph for subgraph in task.subgraphs)
        _graphs, matches = tasks.setdefault(digest, (len(subgraphs), []))
        unknown = subgraphs[len(matches) :]
        with contextlib.closing(self._matched(task, unknown, candidate, passes)) as answers:
            for subgraph, (name, miss) in zip(unknown, answers, strict=True):
                match = GraphMatch(subgraph.graph, counts[subgraph.graph], name, miss)
                matches.append(match)
                yield match

    def _matched(
        self, task: Task, subgraphs: Sequence[Subgraph], candidate: Candidate, passes: PassDir
    ) -> Generator[tuple[str, str], None, None]:
        """Yield the result of :meth:`Matcher.end` for each subgraph. While one process is waited for, others work."""
        begun = 0
        try:
            self._start(candidate, passes)
            for number in range(len(subgraphs)):
                while begun < min(number + PROCESSES, len(subgraphs)):
                    self._matchers[begun % PROCESSES].begin(task, subgraphs[begun])
                    begun += 1
                yield self._matchers[number % PROCESSES].end()
        except ArmFailure:
            check_graphs(task)
            raise
        finally:
            for each in [each for each in self._matchers if each.busy]:
                with contextlib.suppress(ArmFailure):
                    each.end()  # an answer that nobody waits for
            if len(self._matchers) < PROCESSES or any(each.lost for each in self._matchers):
                self._end()

    def _start(self, candidate: Candidate, passes: PassDir) -> None:
        """Start the processes unless they run. Raises ArmFailure."""
        if self._matchers:
            return
        arm = self._arm()  # it starts while the passes are read
        read = self._readers.passes(candidate, passes)
        regions = partial(self._readers.planner(candidate, passes).regions, here=True)
        for _ in range(PROCESSES):
            self._matchers.append(Matcher(arm, read, regions))

    def _of_passes(self, candidate: Candidate, passes: PassDir) -> dict[str, tuple[int, list[GraphMatch]]]:
        code = harness_hash(), metadata.version("torch")
        parts = (candidate.content_hash, candidate.folder(passes), *self._identity, *code)
        key = "matches-" + hashlib.sha256(repr(parts).encode()).hexdigest()
        if self._key != key:
            self.close()
            self._key, self._stored = key, self._store.get(key) or b"{}"
            self._tasks = {
                digest: (graphs, [GraphMatch(*item) for item in matches])
                for digest, (graphs, matches) in json.loads(self._stored).items()
            }
        return self._tasks

    def close(self) -> None:
        """Write the new results, and end the processes."""
        self._end()
        tasks = {digest: (graphs, list(map(astuple, matches))) for digest, (graphs, matches) in self._tasks.items()}
        data = json.dumps(tasks).encode()
        if data != self._stored:
            self._store.put(self._key, data)
            self._stored = data

    def _end(self) -> None:
        if self._matchers:
            self._readers.forget()  # a region pass was run in the reader itself, and may have left state there
        while self._matchers:
            self._matchers.pop().close()
