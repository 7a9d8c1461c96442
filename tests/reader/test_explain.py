"""The failures of a candidate's Python: the cause and the places come first, with the paths that its author knows."""

from __future__ import annotations

HELPER = """
def checked(x):
    print("width", x.shape[-1])
    raise ValueError(f"needs a width of 64" + "!" * {width})
"""
BODY = "from pass_dir import helper\nreturn helper.checked(x)"


def failed(bench, wrapper, body=BODY, **helpers):
    bench.task()
    root = bench.candidate({"p": wrapper(body)}, **helpers)
    (record,) = bench.judge().values()
    return root, record.arm


def test_a_wrapper_that_raises(bench, wrapper):
    root, arm = failed(bench, wrapper, helper=HELPER.format(width=0))
    assert (arm.status, arm.phase) == ("runtime_fail", "wrapper")
    said = arm.message.splitlines()
    assert said[0] == "pass p: ValueError: needs a width of 64"
    assert said[1].startswith(f"{root}/helper.py:4 in checked: raise ValueError(")
    assert said[2] == f"{root}/p.py:11 in kernel: return helper.checked(x)"
    assert "Traceback (most recent call last):" in said
    assert arm.output.strip() == "width 32"


def test_a_long_message_is_cut_at_its_end(bench, wrapper):
    _, arm = failed(bench, wrapper, helper=HELPER.format(width=100_000))
    assert arm.message.startswith("pass p: ValueError: needs a width of 64!!!")


def test_a_pass_that_cannot_be_imported(bench, wrapper):
    bench.task()
    root = bench.candidate({"p": "from pass_dir import helper\n" + wrapper("return x")}, helper="import no_module")
    (record,) = bench.judge().values()
    said = f"pass p: import failed: ModuleNotFoundError: No module named 'no_module' ({root}/helper.py:1)"
    assert (record.arm.status, record.arm.message) == ("compile_fail", said)
