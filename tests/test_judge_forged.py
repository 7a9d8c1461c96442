"""An arm that says anything but the harness's messages fails, and the tasks after it are judged as ever."""

from __future__ import annotations

import pytest

HONEST = "return torch.nn.functional.gelu(x) + y"
CHANNELS = '''
import json, mmap, os, socket, struct, time

def say(body, length=None):
    for name in os.listdir("/proc/self/fd"):
        try:
            channel = socket.socket(fileno=os.dup(int(name)))
            channel.getpeername()
        except OSError:
            continue
        if channel.type == socket.SOCK_STREAM:
            channel.sendall(struct.pack("<I", len(body) if length is None else length) + body)

READY = {"status": "ready", "passes": [], "operators": [], "rewritten": True, "missed": False, "mutated": [],
         "outputs": 1, "interpreted": False, "events": []}
home, here, processes = os.getpid(), 0, mmap.mmap(-1, 1)

def rehearsing():
    """Whether this is a runner after the first: it runs a block before it says where its tables are."""
    global here
    if os.getpid() not in (home, here):
        here, processes[0] = os.getpid(), processes[0] + 1
    return here and processes[0] > 1

PASS = {"name": "p", "matches": 1, "operators": [], "miss": "", "computed": []}
'''
WHILE_BUILT = {
    "passes-no-list": ("json.dumps({**READY, 'passes': 5}).encode()", "passes: is an integer, not a list"),
    "operators-no-list": (
        "json.dumps({**READY, 'passes': [{**PASS, 'operators': 5}]}).encode()", "passes[0].operators: is an integer",
    ),
    "nested": ("b'[' * 1_000_000", "is nested more than 32 deep"),
    "no-object": ("b'[1]'", "is a list, not an object"),
    "a-status-of-its-own": ("b'{\"status\": \"correct\"}'", "status: is 'correct', not one of ready"),
    "too-long": ("b'', 1 << 30", "has 1073741824 bytes"),
}
IN_A_RUNNER = {
    "hello-of-another-form": ("b'{\"pid\": \"me\"}'", "lacks the field"),
    "hello-nested": ("b'{\"a\":' * 100_000", "is nested more than 32 deep"),
    "hello-too-narrow": (
        "json.dumps(dict(pid=1, filtered=True, pages=1, entries=1, forms=1, text=1, width=7, evidence=0)).encode()",
        "not as wide as they were ordered",
    ),
}


@pytest.fixture
def records(bench, wrapper):
    for name, (body, _said) in WHILE_BUILT.items():
        bench.task(name)
        bench.candidate({"p": wrapper(HONEST, head=f"{CHANNELS}\nsay({body})")}, task=name)
    for name, (body, _said) in IN_A_RUNNER.items():
        bench.task(name)
        forge = f"if rehearsing():\n    say({body})\n    time.sleep(60)\n{HONEST}"
        bench.candidate({"p": wrapper(forge, head=CHANNELS)}, task=name)
    bench.task("zz-honest")
    bench.candidate({"p": wrapper(HONEST)}, task="zz-honest")
    return bench.judge(timeout=10.0, policy="open")


def test_forged_messages_are_the_arms_own_failure(records):
    for name, (_body, said) in WHILE_BUILT.items():
        arm = records[f"{name}/float32-x1"].arm
        assert (name, arm.status, arm.phase) == (name, "integrity", "build")
        assert said in arm.message, name
    for name, (_body, said) in IN_A_RUNNER.items():
        arm = records[f"{name}/float32-x1"].arm
        assert (name, arm.status, arm.phase) == (name, "integrity", "fork")
        assert said in arm.message, name
    assert records["zz-honest/float32-x1"].arm.status == "correct"
