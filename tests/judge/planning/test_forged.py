"""A candidate that forges its reader's messages: bad ones fail, good ones are data, other candidates are unharmed."""

from __future__ import annotations

import contextlib
import fcntl
import resource
import socket
import tempfile
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_passbench.judge.arms.failures import ArmFailure
from pytest_passbench.judge.planning.candidate_readers import CandidateReaders
from pytest_passbench.judge.planning.reader_process import ReaderProcess
from pytest_passbench.protocol import send
from support.forged_messages import CHANNELS

HONEST = "return torch.nn.functional.gelu(x) + y"
WHILE_LOADED = {
    "passes-no-list": ("json.dumps({'status': 'ready', 'passes': 5}).encode()", "passes: is an integer, not a list"),
    "nested": ("b'[' * 1_000_000", "has more than 32 lists and objects in each other"),
    "no-object": ("b'[1]'", "is a list, not an object"),
    "a-status-of-its-own": ('b\'{"status": "correct"}\'', "status: is 'correct', not one of ready"),
    "too-long": ("b'', 1 << 30", "has 1073741824 bytes"),
}
WHILE_RECORDED = {
    "plan-no-object": ("b'{\"plan\": 5}'", "is an integer, not an object"),
    "plan-with-a-loop": ("plan(steps=[{'loop': [1]}])", "steps[0]: is of unknown kind 'loop'"),
    "plan-out-of-bounds": (
        "plan(returns=[{'operand': ['argument', 0, 9999, 'float32', [1], [1]]}])",
        "has an operand that goes beyond its argument",
    ),
    "operator-of-many": (
        "plan(steps=[{'operator': ['aten.mul', [], [], []]}],"
        " returns=[{'operand': ['argument', 0, 0, 'float32', [16, 32], [32, 1]]}])",
        "calls aten.mul, which is no operator of a graph",
    ),
    "two-answers": ('b\'{"plan": {}, "ended": 9}\'', "has 2 fields"),
    "a-signal-of-its-own": ("b'{\"ended\": 9999}'", "is 9999, not in 0 to 127"),
}
PLAN = """
def plan(**parts):
    empty = {"version": 1, "tensors": [], "tables": [], "kernels": [], "steps": [], "returns": []}
    return json.dumps({"plan": {**empty, **parts}}).encode()
"""
#: A plan that returns the call's first argument: well-formed, and wrong.
LIE = """
say(plan(returns=[{"operand": ["argument", 0, 0, "float32", [16, 32], [32, 1]]}]))
os._exit(86)
"""


@pytest.fixture(scope="module")
def records(shared_bench, wrapper):
    bench = shared_bench
    for name, (body, _said) in WHILE_LOADED.items():
        bench.task(name)
        bench.candidate({"p": wrapper(HONEST, head=f"{CHANNELS}\nsay({body})")}, task=name)
    for name, (body, _said) in WHILE_RECORDED.items():
        bench.task(name)
        forge = f"say({body})\nos._exit(86)\n{HONEST}"
        bench.candidate({"p": wrapper(forge, head=CHANNELS + PLAN)}, task=name)
    bench.task("lie")
    bench.candidate({"p": wrapper(LIE, head=CHANNELS + PLAN)}, task="lie")
    bench.task("zz-honest")
    bench.candidate({"p": wrapper(HONEST)}, task="zz-honest")
    return bench.judge(timeout=10.0, policy="open")


@pytest.mark.parametrize("name", WHILE_LOADED)
def test_what_is_no_message_fails_while_passes_are_loaded(records, name):
    arm = records[f"{name}/float32-x1"].arm
    assert (arm.status, arm.phase) == ("integrity", "load")
    assert WHILE_LOADED[name][1] in arm.message


@pytest.mark.parametrize("name", WHILE_RECORDED)
def test_what_is_no_plan_fails_while_a_call_is_recorded(records, name):
    arm = records[f"{name}/float32-x1"].arm
    assert arm.status in ("integrity", "runtime_fail")
    assert WHILE_RECORDED[name][1] in arm.message


def test_a_plan_without_a_kernel_is_no_match(records):
    arm = records["lie/float32-x1"].arm
    assert (arm.status, arm.phase) == ("pass_miss", "match")
    assert "none of its kernels writes bytes" in arm.message


def test_the_task_after_them_is_judged_as_ever(records):
    assert records["zz-honest/float32-x1"].correct


@contextlib.contextmanager
def many_files(count: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        pytest.skip("this process may not open as many files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_reader_is_heard_whatever_the_number_of_its_channel():
    ours, theirs = socket.socketpair()
    arm: Any = SimpleNamespace(patience=lambda *_phase: 5.0, answering=lambda *_how: contextlib.nullcontext())
    passes: Any = SimpleNamespace(stems=(), path="")
    with many_files(1200), theirs, ours, tempfile.TemporaryFile() as log:
        channel = socket.socket(fileno=fcntl.fcntl(ours.fileno(), fcntl.F_DUPFD, 1100))
        send(theirs, {"status": "failed", "message": "no such module"})
        with channel, pytest.raises(ArmFailure, match="no such module"):
            ReaderProcess(arm, channel, log, "/candidate", passes, None).passes()


def test_a_failure_to_load_that_is_remembered_does_not_grow():
    nobody: Any = None
    readers = CandidateReaders("kernels", nobody, nobody, nobody)
    candidate, passes = SimpleNamespace(content_hash="0"), SimpleNamespace(path="p")
    readers._failures["0", "p"] = ArmFailure("compile_fail", "load", "no such module")
    for _ in range(3):
        with pytest.raises(ArmFailure) as caught:
            readers.planner(candidate, passes)
        assert len(caught.traceback) == 2
