"""Messages of an untrusted process: each is one of the harness's, or raises :class:`Rejected` and nothing else."""

from __future__ import annotations

import json
import os
import random
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_passbench.core.rejected import Rejected
from pytest_passbench.core.schema import (
    ADDRESS,
    Fields,
    Flag,
    Items,
    Kinds,
    Row,
    Text,
    Whole,
    Word,
    read,
)
from pytest_passbench.judge.arms import replies
from pytest_passbench.judge.arms.failures import ArmFailure, ending
from pytest_passbench.judge.arms.wire import hear, socket_pair
from pytest_passbench.protocol import LENGTH, ProtocolError, receive, send, to_the_end

PASS = {
    "name": "p", "matches": 1, "operators": ["aten::add"], "miss": "", "computed": [], "nearness": 0.5,
    "kind": "pattern", "left": [],
}  # fmt: skip
READY = {
    "status": "ready", "passes": [PASS], "missed": False,
    "working": ["p"], "places": [["p", ["tmp_0"]]], "mutated": [0], "outputs": 1, "interpreted": False,
}  # fmt: skip
RUNNER = {
    "status": "ready", "pages": 1 << 47, "entries": 1 << 40, "forms": 1, "text": 2, "width": 1,
}  # fmt: skip
STEPS = Kinds("op", {"fill": Fields({"value": Whole(-9, 9)}), "free": Fields({})})
PLAN = Fields({"steps": Items(STEPS, most=9, least=1), "names": Items(Row(Text(9), Flag()), most=9)})
MESSAGES = [
    (replies.ZYGOTE, {"status": "ready"}),
    (replies.FORKED, {"forked": 12}),
    (replies.ENDED, {"ended": [[12, 9], [13, 0]]}),
    (replies.BUILT, READY),
    (replies.BUILT, {"status": "compile_fail", "phase": "load", "message": "no such name"}),
    (replies.RUNNER, RUNNER),
    (replies.CUDA_RUNNER, {**RUNNER, "copies": 1, "input_copy": 2, "device_seconds": 3, "fill_rate": 4}),
    (replies.CUDA_RUNNER, {"status": "crash", "phase": "fork", "message": "CUDA out of memory"}),
    (replies.BUILT, {"status": "wanted", "request": {"name": "p", "arguments": [], "tensors": []}}),
    (replies.READ, {"status": "ready", "passes": [
        {"name": "p", "kind": "pattern", "pattern": {}, "replacement": "why not", "place": ""}]}),
    (replies.READ, {"status": "ready", "passes": [{"name": "p", "kind": "region"}]}),
    (replies.REGIONS, {"regions": [["add", "relu"], ["mul"]]}),
    (replies.REGIONS, {"raised": "ValueError"}),
    (replies.READ, {"status": "failed", "message": "syntax error"}),
    (replies.RECORDED, {"plan": {"version": 1, "steps": []}}),
    (replies.RECORDED, {"refused": {"rule": "value", "message": "reads", "file": "p.py", "line": 3}}),
    (replies.KERNELS, {"libraries": [["void f() {}", ["-O2"], False, "p.py", 3]], "triton": ["{}"]}),
    (PLAN, {"steps": [{"op": "fill", "value": 2}, {"op": "free"}], "names": [["n", False], ["m", True]]}),
]
ODD = [
    None, True, -1, 1 << 64, 10**400, 5, 9999, 1.5, 1e308, "", "x" * 300_000, "\ud800", "\x1b[31m", [], {}, [[]],
    [None] * 5000, {"status": "ready"}, {"": 1},
]  # fmt: skip


def characters(value: Any) -> int:
    """Return about how long a value is as text. Copies of copies of a long one would fill the memory."""
    total, todo = 0, [value]
    while todo:
        item = todo.pop()
        total += len(item) if isinstance(item, str) else 4
        todo += [*item.values(), *item] if isinstance(item, dict) else item if isinstance(item, list) else []
    return total


def mutated(value: Any, rng: random.Random) -> Any:
    """Return the value with a part of it exchanged, dropped, added or wrapped."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        name = rng.choice(list(value))
        change = rng.randrange(4)
        if change == 0:
            return {key: item for key, item in value.items() if key != name}
        if change == 1:
            return {**value, rng.choice(["", "op", "unknown", "\udfff"]): rng.choice(ODD)}
        return {**value, name: mutated(value[name], rng)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        place = rng.randrange(len(value))
        change = rng.randrange(4)
        if change == 0:
            return value[:place] + value[place + 1 :]
        if change == 1:
            return value * (rng.choice([2, 3000]) if characters(value) < 1000 else 2)
        return [*value[:place], mutated(value[place], rng), *value[place + 1 :]]
    nested: Any = rng.choice(ODD)
    for _ in range(rng.choice([0, 0, 1, 900])):
        nested = [nested] if rng.random() < 0.5 else {"a": nested}
    return nested


@pytest.mark.parametrize(("schema", "message"), MESSAGES)
def test_a_message_of_ours_is_taken_as_it_is(schema, message):
    assert schema.check(message) == message
    assert read(schema, json.dumps(message).encode()) == message


@pytest.mark.parametrize(("schema", "message"), MESSAGES)
@given(seed=st.integers(0, 1 << 40), times=st.integers(1, 3))
def test_any_other_message_is_refused_or_has_the_form(schema, message, seed, times):
    rng = random.Random(seed)
    for _ in range(times):
        message = mutated(message, rng)
    try:
        found = schema.check(message)
    except Rejected as bad:
        said = str(bad).encode()
    else:
        assert schema.check(found) == found
        said = b""
        json.dumps(found, allow_nan=False).encode()
    assert len(said) < 2000


@pytest.mark.parametrize(("schema", "message"), MESSAGES)
@given(seed=st.integers(0, 1 << 40), flips=st.integers(1, 20))
def test_any_bytes_are_refused_or_have_the_form(schema, message, seed, flips):
    rng, data = random.Random(seed), bytearray(json.dumps(message).encode())
    for _ in range(flips):
        place = rng.randrange(len(data))
        piece = rng.choice([b'"', b"[", b"{", b"\\", b"9" * 30, b"1e999", b"NaN", bytes([rng.randrange(256)])])
        data[place : place + rng.randrange(3)] = piece
    try:
        found = read(schema, bytes(data))
    except Rejected:
        return
    assert schema.check(found) == found
    assert read(schema, json.dumps(found, allow_nan=False).encode()) == found


@given(data=st.binary(max_size=200))
def test_noise_is_refused(data):
    with pytest.raises(Rejected):
        read(replies.RUNNER, data)


@pytest.mark.parametrize(
    ("error", "printed"),
    [(ValueError("a"), "ValueError: a"), (ProtocolError("gone"), ""), (BrokenPipeError(), ""), (SystemExit(), "")],
)
def test_a_process_says_what_ended_it_unless_the_judge_hung_up(capfd, error, printed):
    child = os.fork()
    if child == 0:
        with to_the_end():
            raise error
    assert os.waitpid(child, 0)[1] == 0
    text = capfd.readouterr().err
    assert text.strip().endswith(printed) if printed else not text


BOMBS = {
    "nested lists": b"[" * 2_000_000,
    "nested objects": b'{"a":' * 500_000,
    "digits": b'{"forked": ' + b"9" * 3_000_000 + b"}",
    "a string without an end": b'"' + b'\\"' * 1_000_000,
    "backslashes": b'"' + b"\\" * 2_000_001,
    "brackets": b"[" + b"[]," * 1_000_000,
    "twice": b'{"forked": 1, "forked": 2}',
    "no number": b'{"forked": NaN}',
    "infinite": b'{"forked": -Infinity}',
    "another encoding": '{"forked": 1}'.encode("utf-16"),
    "no text": b'{"forked": "\xff"}',
    "too long": b" " * (1 << 23),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_bombs_are_refused(bomb):
    """The time grows linearly with their length: otherwise some of these take hours."""
    with pytest.raises(Rejected):
        read(replies.FORKED, BOMBS[bomb])


def test_brackets_within_a_text_do_not_count():
    deep = "[" * 1000 + '\\"{'
    message = {"status": "runtime_fail", "phase": deep[:9], "message": deep}
    assert read(replies.BUILT, json.dumps(message).encode()) == message


@pytest.mark.parametrize(
    ("schema", "value", "said"),
    [
        (Text(3), "four", "has 4 characters, more than 3"),
        (Text(3), b"x", "is something else, not a text"),
        (Whole(0, 5), True, "is true or false, not an integer"),
        (Whole(0, 5), 6, "is 6, not in 0 to 5"),
        (ADDRESS, 1 << 300, "is a number of 301 bits, not in 0 to 18446744073709551615"),
        (Word("a", "b"), "c", "is 'c', not one of a, b"),
        (Items(Flag(), most=1), [True, True], "has 2 items, not 0 to 1"),
        (Row(Flag(), Flag()), [True], "has 1 items, not 2"),
        (Fields({"a": Flag()}), {}, "lacks the field a"),
        (Fields({}), {"\ud800" * 99: 1}, f"has the unknown field '{chr(92)}ud800"),
        (PLAN, {"steps": [{"op": "free"}, {"op": "jump"}], "names": {}}, "steps[1].op: is 'jump', not one of fill"),
        (PLAN, {"steps": [{"op": "free", "at": 1}], "names": {}}, "steps[0]: has the unknown field 'at'"),
        (PLAN, {"steps": [{}], "names": {}}, "steps[0]: lacks the field op"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(schema, value, said):
    with pytest.raises(Rejected) as bad:
        schema.check(value)
    assert str(bad.value).startswith(said)


def test_what_no_file_can_hold_is_written_out():
    assert Text(9).check("a\ud800b") == "a\\ud800b"


def said(data: bytes, patience: float = 5.0) -> Any:
    """Return the message that the judge reads from these bytes, on a channel whose other end is closed after them."""
    mine, theirs = socket_pair()
    with mine, theirs:
        mine.settimeout(patience)
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        return hear(mine, replies.FORKED, "fork")


def test_what_is_heard_is_checked():
    body = json.dumps({"forked": 3}).encode()
    assert said(LENGTH.pack(len(body)) + body) == {"forked": 3}
    for data in (LENGTH.pack(2) + b"[]", LENGTH.pack(1 << 31), LENGTH.pack(0)):
        with pytest.raises(ArmFailure, match="integrity in fork: sent a message that is not one of the harness's"):
            said(data)
    with pytest.raises(ProtocolError):
        said(LENGTH.pack(9) + b"{}")


def test_a_message_that_comes_byte_by_byte_ends_with_the_time_out():
    mine, theirs = socket_pair()
    with mine, theirs:
        mine.settimeout(0.2)
        theirs.sendall(LENGTH.pack(100) + b"{")
        with pytest.raises(TimeoutError):
            hear(mine, replies.FORKED, "fork")
        assert mine.gettimeout() == 0.2


@pytest.mark.parametrize("number", [-3, 40, 127, 9999])
def test_any_signal_has_words(number):
    assert f"signal {number}" in ending(number, "the runner")


def test_a_message_that_was_read_is_sent_even_if_its_reader_is_gone_by_then():
    """A process that fails at once may read the message, answer, and end before the sender goes on."""
    ours, theirs = socket.socketpair()

    class ReadAtOnce(socket.socket):
        def sendmsg(self, *arguments):
            sent = super().sendmsg(*arguments)
            assert receive(theirs)[0] == {"op": "go"}
            theirs.close()
            return sent

    with ReadAtOnce(fileno=ours.detach()) as channel:
        send(channel, {"op": "go"})
