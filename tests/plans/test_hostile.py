"""Whatever a reader sends, the judge and the executing side survive it, and no plan makes a wrong answer right.

``PASSBENCH_MUTATIONS`` says how many of each kind are tried; ``benchmarks/hostile.py`` tries 10,000.
"""

from __future__ import annotations

import json
import os
import random
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_passbench.candidate.layout import PassDir
from pytest_passbench.core.rejected import Rejected
from pytest_passbench.core.schema import read
from pytest_passbench.judge.arms import replies
from pytest_passbench.judge.arms.arm import Arm
from pytest_passbench.judge.arms.failures import ArmFailure
from pytest_passbench.judge.planning.reader_process import ReaderProcess
from pytest_passbench.plans import graphs, values
from pytest_passbench.plans import parse as plan_parse
from pytest_passbench.protocol import LENGTH
from shared import hostile_plans as hostile

SEEDS = st.integers(0, 2**62)
MANY = settings(max_examples=int(os.environ.get("PASSBENCH_MUTATIONS", "300")), deadline=None)
SOME = settings(max_examples=60, deadline=None)
ANSWERS: list[tuple[Any, Any]] = [
    (replies.RECORDED, {"plan": hostile.PLANS[0]}),
    (replies.RECORDED, {"refused": {"rule": "value", "message": "reads", "file": "p.py", "line": 3}}),
    (replies.RECORDED, {"raised": "Traceback"}),
    (replies.RECORDED, {"ended": 9}),
    (replies.READ, {"status": "ready", "passes": [
        {"name": "p", "kind": "pattern", "pattern": hostile.GRAPH, "replacement": "none", "place": ""}]}),
    (replies.READ, {"status": "failed", "message": "no such name"}),
    (replies.BUILT, {"status": "wanted", "request": hostile.request().to_data()}),
]


@pytest.mark.parametrize("data", hostile.PLANS[:4], ids=("launch", "all steps", "triton", "tuned"))
def test_a_plan_as_it_was_recorded_runs(data: Any) -> None:
    assert hostile.tried(data) == "ran"


@MANY
@given(SEEDS)
def test_a_mutated_plan_is_refused_or_runs_and_is_never_right(seed: int) -> None:
    rng = random.Random(seed)
    assert hostile.tried(hostile.mutated(rng.choice(hostile.PLANS), rng)) != "right"


@MANY
@given(SEEDS)
def test_a_mutated_graph_is_read_or_refused(seed: int) -> None:
    data = hostile.mutated(hostile.GRAPH, random.Random(seed))
    try:
        graph = graphs.from_data(data)
    except Rejected:
        return
    written = graphs.to_data(graph)
    assert repr(graphs.to_data(graphs.from_data(json.loads(json.dumps(written))))) == repr(written)
    special = "inf" in repr(data) or "nan" in repr(data)  # numbers that JSON lacks are written as objects
    assert special or [call[1:] for call in written["calls"]] == [call[1:] for call in data["calls"]]


@MANY
@given(SEEDS)
def test_a_mutated_constant_is_read_or_refused(seed: int) -> None:
    rng = random.Random(seed)
    data = hostile.mutated(rng.choice(hostile.VALUES), rng)
    try:
        found = values.decode(data)
    except Rejected:
        return
    assert repr(values.decode(json.loads(json.dumps(values.encode(found))))) == repr(found)


@MANY
@given(SEEDS)
def test_a_mutated_message_is_one_of_ours_or_none(seed: int) -> None:
    rng = random.Random(seed)
    schema, message = rng.choice(ANSWERS)
    changed = hostile.mutated(message, rng)
    text = bytearray(json.dumps(changed).encode())
    for _ in range(rng.choice((0, 0, 3))):
        text[rng.randrange(len(text))] = rng.randrange(256)
    with suppress(Rejected):
        accepted = schema.check(changed)
        assert schema.check(accepted) == accepted
    with suppress(Rejected):
        accepted = read(schema, bytes(text))
        same = json.loads(text)
        assert accepted == same or "\\ud" in json.dumps(same)  # a lone surrogate is escaped
        assert read(schema, json.dumps(accepted, allow_nan=False).encode()) == accepted


@MANY
@given(SEEDS)
def test_a_mutated_request_is_read_or_refused(seed: int) -> None:
    data = hostile.mutated(hostile.request().to_data(), random.Random(seed))
    try:
        request = plan_parse.request(data)
    except Rejected:
        return
    written = json.dumps(request.to_data())
    assert repr(plan_parse.request(json.loads(written))) == repr(request)  # repr, since NaN is not equal to itself


@SOME
@given(seed=SEEDS)
def test_a_planner_answers_or_fails_the_arm(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp()
    (folder / "p.py").write_text(hostile.TRITON)
    rng = random.Random(seed)
    try:
        plan = plan_parse.plan(hostile.mutated(rng.choice(hostile.PLANS), rng), hostile.request().tensors)
        hostile.answered(plan, folder)
    except (Rejected, ArmFailure):
        return


class _Arm:
    """A sandbox with nothing in it."""

    answering, loss = Arm.answering, None

    def patience(self, _phase: str) -> float:
        return 2.0

    def late(self, phase: str, _what: str) -> ArmFailure:
        return ArmFailure("timeout", phase, "no answer")

    def everything_inside(self) -> list[int]:
        return []

    def end_children(self) -> None:
        return None

    def reap(self) -> int:
        return 0


@SOME
@given(SEEDS)
def test_whatever_a_reader_says_ends_as_a_plan_or_as_its_failure(seed: int) -> None:
    rng = random.Random(seed)
    _schema, message = rng.choice(ANSWERS[:4])
    text = json.dumps(hostile.mutated(message, rng)).encode()
    length = rng.choice((len(text), len(text), len(text) - 1, len(text) + 1, 2**32 - 1))
    mine, theirs = socket.socketpair()
    with mine, theirs, Path(os.devnull).open("rb") as log:
        theirs.sendall((LENGTH.pack(max(length, 0)) + text) * 2)
        theirs.shutdown(socket.SHUT_WR)
        arm: Any = _Arm()
        try:
            reader = ReaderProcess(arm, mine, log, "/candidate", PassDir(Path("cand"), ("p",)), os.getpid())
            reader.record(hostile.request(), "kernels")
        except (ArmFailure, Rejected):
            return


def test_names_in_a_plan_are_no_keywords_and_differ() -> None:
    for names in (("class", "n"), ("n", "n"), ("\ufb01", "fi"), ("x y", "n"), ("n)or(", "n")):
        launch = {"triton": [0, [1, 1, 1], [[name, 1] for name in names], []]}
        data = {**hostile.PLANS[2], "steps": [{"allocate": hostile.PLANS[2]["steps"][0]["allocate"]}, launch]}
        with pytest.raises(Rejected, match="name"):
            plan_parse.plan(data, hostile.request().tensors)


def test_constant_tables_are_read_only_memory_that_no_call_returns(tmp_path: Path) -> None:
    plan = plan_parse.plan(hostile.PLANS[1], hostile.request().tensors)
    from pytest_passbench.runner.replay import replay

    table = replay(plan, [lambda *_a: None] * 2, "cpu", False, []).namespace["t0"]
    page = f"{table.data_ptr() & ~0xFFF:x}-"
    (line,) = [line for line in Path("/proc/self/maps").read_text().splitlines() if line.startswith(page)]
    assert line.split()[1].startswith("r--")
    returned = {**hostile.PLANS[1], "returns": [{"operand": ["table", 0, 0, "float32", [16], [1]]}]}
    with pytest.raises(Rejected, match="returns a tensor made outside the call"):
        plan_parse.plan(returned, hostile.request().tensors)
    given = json.loads(json.dumps(hostile.PLANS[1]))
    given["steps"][4]["launch"][1].reverse()
    given["steps"][4]["launch"][1] = [hostile.X, {"operand": ["table", 0, 0, "float32", [16], [1]]}, True]
    with pytest.raises(ArmFailure, match="write to a tensor made outside the call"):
        hostile.answered(plan_parse.plan(given, hostile.request().tensors), tmp_path)
