"""``passbench new``: what it writes, says and refuses."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from pytest_passbench.commands.main import main

SILU = "def forward(in_0, in_1):\n    a = torch.nn.functional.silu(in_0)\n    return (a + in_1,)\n"
FFT = "def forward(in_0):\n    return (torch.fft.fftn(in_0, dim=(1,)),)\n"


def stems(folder):
    return json.loads((folder / "sorted_output_pass_rule_names.json").read_text())


def test_a_pass_is_written_and_its_match_is_explained(bench, tmp_path, capsys):
    task, folder = bench.task(dtypes=("float32", "bfloat16")), tmp_path / "mine"
    assert main(["new", str(task), str(folder)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "gelu_add matches gelu, add"
    assert out[-1].startswith(f"judge it: pytest --passbench --candidate={folder} ")
    assert stems(folder) == ["gelu_add"]
    assert main(["explain", str(folder), str(task)]) == 0
    assert [line.strip() for line in capsys.readouterr().out.splitlines()][1:9] == [
        "g0: float32-x1, bfloat16-x1",
        "| def forward(in_0, in_1):",
        "1 |     tmp_0 = torch.nn.functional.gelu(in_0)",
        "1 |     tmp_1 = tmp_0 + in_1",
        "|     return (tmp_1,)",
        "1: gelu_add replaces tmp_0, tmp_1",
        "gelu_add runs, for float32-x1:",
        "allocate b0: float32 [16, 32]",
    ]


def test_a_pass_is_added_to_others_and_never_overwritten_unasked(bench, tmp_path, capsys):
    first, folder = bench.task(), tmp_path / "mine"
    second = bench.task("other", source=SILU, ops=("silu", "add"))
    assert main(["new", str(first), str(folder)]) == main(["new", str(second), str(folder)]) == 0
    assert stems(folder) == ["gelu_add", "silu_add"]
    (folder / "gelu_add.py").write_text("# mine\n")
    capsys.readouterr()
    assert main(["new", str(first), str(folder)]) == 1
    assert "gelu_add.py: exists already (name another folder, or add --force)" in capsys.readouterr().err
    assert (folder / "gelu_add.py").read_text() == "# mine\n"
    assert main(["new", str(first), str(folder), "--force"]) == 0
    assert "def pattern" in (folder / "gelu_add.py").read_text()
    assert stems(folder) == ["gelu_add", "silu_add"]


@pytest.mark.parametrize("choice", [["--operators", "1"], ["--ops", "add"]])
def test_a_part_of_the_graph_can_be_chosen(bench, tmp_path, capsys, choice):
    assert main(["new", str(bench.task()), str(tmp_path / "mine"), *choice]) == 0
    out = capsys.readouterr().out
    assert "add matches add\n" in out
    assert "left to eager: tmp_0 (gelu): it is not among the requested operators" in out


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (["--operators", "1..7"], "--operators 1..7: the graph has the lines 0 to 1"),
        (["--ops", "add,gelu"], "--ops add,gelu: the graph has no such run (it has gelu,add)"),
        (["--ops", "add", "--operators", "1"], "--operators and --ops both name the run"),
    ],
)
def test_a_run_that_is_not_there_is_named(bench, tmp_path, capsys, choice, said):
    assert main(["new", str(bench.task()), str(tmp_path / "mine"), *choice]) == 1
    assert said in capsys.readouterr().err
    assert not (tmp_path / "mine").exists()


def test_a_call_without_a_kernel_is_named_and_nothing_is_written(bench, tmp_path, capsys):
    task = bench.task("fft", source=FFT, shapes=((4, 8),), ops=("fft_fftn",))
    assert main(["new", str(task), str(tmp_path / "mine")]) == 1
    assert "fft: no kernel for complex64 (write the pass by hand" in capsys.readouterr().err
    assert not (tmp_path / "mine").exists()


def test_a_kernel_that_may_round_otherwise_is_named(bench, tmp_path, capsys):
    calls = "a = torch.softmax(in_0, -1)\n    b = torch.nn.functional.linear(a, in_1)\n"
    source = f"def forward(in_0, in_1):\n    {calls}    return (b,)\n"
    task = bench.task("scores", source, ((4, 8), (8, 8)), ("bfloat16",), ops=("softmax",))
    assert main(["new", str(task), str(tmp_path / "mine")]) == 1
    said = capsys.readouterr().err
    assert "softmax, since its roundings would show behind linear" in said
    assert "(--operators 0..0 (softmax) has one that may round otherwise than eager)" in said


@pytest.mark.parametrize("norm", ["rms_norm", "layer_norm"])
def test_a_norm_that_adds_in_the_order_of_eager_may_stand_before_a_product(bench, tmp_path, capsys, norm):
    norms = f"a = torch.nn.functional.{norm}(in_0, (8,))\n    b = torch.nn.functional.linear(a, in_1)\n"
    source = f"def forward(in_0, in_1):\n    {norms}    return (b,)\n"
    task = bench.task("norms", source, ((4, 8), (8, 8)), ("bfloat16", "float32"), ops=(norm,))
    assert main(["new", str(task), str(tmp_path / "mine")]) == 0
    assert f"{norm} matches {norm}\n" in capsys.readouterr().out


def test_a_norm_in_float32_may_not_stand_before_a_rounding_and_a_product(bench, tmp_path, capsys):
    norms = "a = torch.nn.functional.layer_norm(in_0.float(), (8,))\n    b = a.to(in_1.dtype) @ in_1\n"
    source = f"def forward(in_0, in_1):\n    {norms}    return (b,)\n"
    task = bench.task("norms", source, ((4, 8), (8, 8)), ("bfloat16",), ops=("layer_norm", "to", "matmul"))
    assert main(["new", str(task), str(tmp_path / "mine")]) == 1
    assert "layer_norm, since its roundings would show behind matmul" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["1-3", "x", "..2"])
def test_a_run_in_another_form_is_refused(bench, tmp_path, capsys, word):
    with pytest.raises(SystemExit) as left:
        main(["new", str(bench.task()), str(tmp_path / "mine"), "--operators", word])
    assert left.value.code == 2
    assert "is no run of lines: write 0..3" in capsys.readouterr().err


def test_a_triton_kernel_passes_the_audit(bench, tmp_path, capsys):
    folder = tmp_path / "mine"
    assert main(["new", str(bench.task()), str(folder), "--triton"]) == 0
    assert "@triton.jit" in (folder / "gelu_add.py").read_text()
    capsys.readouterr()
    assert main(["explain", str(folder)]) == 0
    assert capsys.readouterr().out == "1 pass read, 0 violations, 0 errors, 0 warnings\n"


@pytest.mark.slow
def test_a_pass_that_matches_nothing_is_explained_by_its_nearest_place(bench, tmp_path, capsys):
    task, folder = bench.task(), tmp_path / "mine"
    main(["new", str(bench.task("other", source=SILU, ops=("silu", "add"))), str(folder)])
    capsys.readouterr()
    assert main(["explain", str(folder), str(task)]) == 1
    out = capsys.readouterr().out
    assert "no pass matches:" in out
    assert "silu_add: nearest: add (tmp_1): argument input: expected silu, found gelu (tmp_0)" in out
    assert main(["explain", str(folder), str(task), "--subgraph", "none"]) == 1
    assert "gelu-add has no subgraph 'none'" in capsys.readouterr().err


@pytest.mark.slow
def test_a_result_of_another_shape_is_named(bench, tmp_path, capsys):
    task, folder = bench.task(), tmp_path / "mine"
    main(["new", str(task), str(folder)])
    path = folder / "gelu_add.py"
    path.write_text(path.read_text().replace("torch.empty(x.shape,", "torch.empty(x.shape[::-1],"))
    capsys.readouterr()
    returned = "pass gelu_add returns float32 [32, 16]; the operators that it replaces give float32 [16, 32]"
    said = f"gelu_add.py: error [shape] float32-x1: {returned}"
    assert main(["explain", str(folder), str(task)]) == 1
    assert said in capsys.readouterr().out.splitlines()
    assert main(["explain", str(folder), str(task)]) == 1
    out = capsys.readouterr().out.splitlines()
    assert [line for line in out if "[shape]" in line] == [said]
    assert "  1: gelu_add replaces tmp_0, tmp_1" in out
    assert "       allocate b0: float32 [32, 16]" in out


def test_a_task_that_is_not_there_is_named_before_torch_is_imported(tmp_path):
    program = f"""if True:
        import sys
        from pytest_passbench.commands.main import main
        assert main(["new", "mul-div-erf", {str(tmp_path / "mine")!r}]) == 1
        assert "torch" not in sys.modules
    """
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "no task is called 'mul-div-erf' (did you mean " in result.stderr
