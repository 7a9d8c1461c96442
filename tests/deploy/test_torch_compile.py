"""A candidate's passes in a user's own program: ``pytest_passbench.backend`` and ``inductor_pass``."""

from __future__ import annotations

import json
import operator
import threading
import warnings
from pathlib import Path

import pytest
import torch
from torch.autograd import forward_ad
from torch.nn import functional as F

import pytest_passbench
from pytest_passbench.core.errors import UserError
from pytest_passbench.deploy.passes import DeployedPasses, open_directory
from pytest_passbench.deploy.sizes import specialised
from pytest_passbench.deploy.torch_compile import PassWarning
from pytest_passbench.plans.launch import Argument, Request, contiguous
from pytest_passbench.rewrite.passes import PassError
from support.paths import ROOT

ADD_RELU = '''
import torch
from pytest_passbench.kernels import cpp

lib = cpp.load("""
#include <cstdint>
extern "C" void add_relu(const float* x, const float* y, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] + y[i] > 0 ? x[i] + y[i] : 0;
}
extern "C" void add_relu_t(const float* x, const float* y, float* out, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows; ++i) for (int64_t j = 0; j < columns; ++j) {
    const float sum = x[i + j * rows] + y[i + j * rows];
    out[i * columns + j] = sum > 0 ? sum : 0;
  }
}
""")


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


def wrapper(x, y):
    out = torch.empty_like(x)
    lib.add_relu(x, y, out, x.numel())
    return out


def replacement_func():
    return wrapper
'''
REGION = """
from pytest_passbench.fusion import regions

supported = regions.supported


def replacement_func():
    return regions.launch
"""
RAISES = "    raise ValueError('no kernel for this')\n"
CALLS_TORCH = "    return torch.clamp(x + y, min=0)\n"
OTHER_SHAPE = "    return torch.empty(3)\n"
WHOLE_WRAPPER = """    out = torch.empty_like(x)
    lib.add_relu(x, y, out, x.numel())
    return out
"""


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def candidate(folder: Path, body: str = WHOLE_WRAPPER) -> Path:
    """Write a candidate with one pass, whose wrapper has this body."""
    folder.mkdir(exist_ok=True)
    (folder / "add_relu.py").write_text(ADD_RELU.replace(WHOLE_WRAPPER, body))
    (folder / "sorted_output_pass_rule_names.json").write_text(json.dumps(["add_relu"]))
    return folder


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        return torch.relu(self.linear(x) + x) * 2


class Breaking(Model):
    def forward(self, x):
        y = super().forward(x)
        torch._dynamo.graph_break()
        return torch.relu(y + x)


@pytest.fixture
def x():
    return torch.randn(4, 8, generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def test_a_model_runs_with_a_candidate_s_passes(tmp_path, x):
    model, backend = Model(), pytest_passbench.backend(candidate(tmp_path / "c"))
    compiled = torch.compile(model, backend=backend)
    for inputs in (x, -x):
        torch.testing.assert_close(compiled(inputs), model(inputs))
    report = backend.report()
    assert report.matches == {"add_relu": 1}
    assert report.left == {"linear": 1, "mul": 1}
    assert "add_relu" in str(report)
    assert str(report).startswith("1 graph; kernels replace ")
    assert "left to eager: linear (1)" in str(report)


@torch.no_grad()
def test_an_identity_that_a_kernel_replaces_is_not_left_to_eager(tmp_path, x):
    folder = candidate(tmp_path / "c")
    text = ADD_RELU.replace("torch.relu(x + y)", "torch.relu(torch.nn.functional.dropout(x, 0.1, False) + y)")
    (folder / "add_relu.py").write_text(text)
    backend = pytest_passbench.backend(folder)
    torch.compile(lambda x: torch.relu(F.dropout(x, 0.1, False) + x * 2), backend=backend)(x)
    assert str(backend.report()).startswith("1 graph; kernels replace 3 of 4 operators")
    assert backend.report().left == {"mul": 1}


@torch.no_grad()
def test_a_wrapper_is_recorded_once_for_like_matches_and_anew_for_others(tmp_path, x, capsys):
    """So recording takes no longer for a model of many layers than for one of few."""
    folder = candidate(tmp_path / "c", "    print('recorded')\n" + WHOLE_WRAPPER)

    def layers(x, y):
        return torch.relu(torch.relu(x + x.flip(0)) + x), torch.relu(y + y.flip(0))

    times = {}
    for name, function in (("one", lambda x, y: torch.relu(x + y)), ("three", layers)):
        y = x if name == "one" else x[:2].clone()
        backend = pytest_passbench.backend(folder)
        torch.testing.assert_close(torch.compile(function, backend=backend)(x, y), function(x, y))
        times[name] = capsys.readouterr().out.count("recorded")
    assert backend.report().matches == {"add_relu": 3}
    assert times["three"] == 2 * times["one"] > 0


def region_candidate(folder: Path, text: str = REGION) -> Path:
    """Write a candidate with one region pass."""
    folder.mkdir(exist_ok=True)
    (folder / "region.py").write_text(text)
    (folder / "sorted_output_pass_rule_names.json").write_text(json.dumps(["region"]))
    return folder


@torch.no_grad()
def test_a_region_pass_takes_what_it_supports(tmp_path, x):
    model, backend = Model(), pytest_passbench.backend(region_candidate(tmp_path / "c"))
    compiled = torch.compile(model, backend=backend)
    for inputs in (x, -x):
        torch.testing.assert_close(compiled(inputs), model(inputs))
    assert backend.report().matches == {"region": 1}
    assert backend.report().left == {"linear": 1}


@torch.no_grad()
@pytest.mark.parametrize(
    ("wrapper", "reason"),
    [
        ("raise NotImplementedError('too small')", "too small"),
        ("cpp.load('extern \"C\" void f(const float* x) { ; ').f(values[0])", "a kernel cannot be compiled"),
    ],
)
def test_a_region_without_a_kernel_is_left_to_eager(tmp_path, x, wrapper, reason):
    text = f"from pytest_passbench.kernels import cpp\n{REGION}".replace("return regions.launch", "return wrapper")
    text += f"\n\ndef wrapper(region, *values):\n    {wrapper}\n    return values[0]\n"
    model, backend = Model(), pytest_passbench.backend(region_candidate(tmp_path / "c", text))
    torch.testing.assert_close(torch.compile(model, backend=backend)(x), model(x))
    assert not backend.report().matches
    assert f"pass region leaves to eager add to mul: {reason}" in str(backend.report())


@torch.no_grad()
def test_a_region_pass_that_raises_is_left_out_with_a_warning(tmp_path, x):
    text = REGION.replace("supported = regions.supported", "def supported(node):\n    return node.nothing\n")
    model, backend = Model(), pytest_passbench.backend(region_candidate(tmp_path / "c", text))
    with pytest.warns(PassWarning, match="pass region: supported raised AttributeError"):
        outputs = torch.compile(model, backend=backend)(x)
    torch.testing.assert_close(outputs, model(x))


@torch.no_grad()
def test_a_wrapper_that_is_no_launch_plan_is_called_itself(tmp_path, x):
    model, backend = Model(), pytest_passbench.backend(candidate(tmp_path / "c", CALLS_TORCH))
    torch.testing.assert_close(torch.compile(model, backend=backend)(x), model(x))
    assert backend.report().matches == {"add_relu": 1}


@torch.no_grad()
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (RAISES, "pass add_relu: its wrapper raised ValueError: no kernel for this; it is left out of a graph"),
        (OTHER_SHAPE, r"pass add_relu: its wrapper returns float32 \[3\], the graph needs float32 \[4, 8\]"),
    ],
)
def test_a_pass_that_fails_is_left_out_with_a_warning_that_names_it(tmp_path, x, body, message):
    model, backend = Model(), pytest_passbench.backend(candidate(tmp_path / "c", body))
    with pytest.warns(PassWarning, match=message):
        outputs = torch.compile(model, backend=backend)(x)
    torch.testing.assert_close(outputs, model(x))
    assert not backend.report().matches


@torch.no_grad()
def test_a_shipped_pass_that_has_no_kernel_for_a_bias_that_is_a_column_is_left_out(x):
    backend, column = pytest_passbench.backend(ROOT / "candidates/cpu-fused"), torch.ones(x.shape[0], 1)
    compiled = torch.compile(lambda x: F.softplus(x + column), backend=backend)
    with pytest.warns(PassWarning, match="pass softplus_bias: its wrapper raised ValueError"):
        outputs = compiled(x)
    torch.testing.assert_close(outputs, F.softplus(x + column))


def test_a_graph_that_needs_gradients_runs_in_eager_and_says_so(tmp_path, x):
    model, backend = Model(), pytest_passbench.backend(candidate(tmp_path / "c"))
    with pytest.warns(PassWarning, match="a graph that needs gradients runs in eager"):
        torch.compile(model, backend=backend)(x).sum().backward()
    expected = Model()
    expected.load_state_dict(model.state_dict())
    expected(x).sum().backward()
    torch.testing.assert_close(model.linear.weight.grad, expected.linear.weight.grad)


def gradients_on(x, y):
    with torch.enable_grad():
        return torch.relu(x + y) * x


@torch.no_grad()
def test_a_graph_that_switches_gradients_on_runs_in_eager(tmp_path, x):
    backend, y = pytest_passbench.backend(candidate(tmp_path / "c")), torch.ones(4, 8, requires_grad=True)
    compiled = torch.compile(gradients_on, backend=backend)
    torch.testing.assert_close(compiled(x, y.detach()), gradients_on(x, y))
    assert backend.report().matches == {"add_relu": 1}
    with pytest.warns(PassWarning, match="a graph that needs gradients runs in eager"):
        outputs = compiled(x, y)
    (gradient,), (expected,) = (torch.autograd.grad(value, y, x) for value in (outputs, gradients_on(x, y)))
    torch.testing.assert_close(gradient, expected)


def test_a_graph_with_parameters_of_its_own_runs_in_eager(tmp_path, x):
    graph = torch.fx.symbolic_trace(Model())
    with pytest.warns(PassWarning, match="a graph that needs gradients runs in eager"):
        function = pytest_passbench.backend(candidate(tmp_path / "c"))(graph, [x])
    function(x).sum().backward()
    assert graph.linear.weight.grad is not None


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own use of it
def test_a_call_at_a_level_of_forward_mode_differentiation_has_eager_s_tangent(tmp_path, x):
    def function(x, y):
        return torch.relu(x + y) + x

    compiled = torch.compile(function, backend=pytest_passbench.backend(candidate(tmp_path / "c")))
    torch.testing.assert_close(compiled(x, x), function(x, x))
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones(4, 8))
        with pytest.warns(PassWarning, match="a graph that needs gradients runs in eager"):
            outputs = compiled(dual, x)
        tangents = [forward_ad.unpack_dual(value).tangent for value in (outputs, function(dual, x))]
    torch.testing.assert_close(*tangents)


@torch.no_grad()
@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.func.jvp(lambda y: torch.relu(y + y), (x,), (x,)),
        lambda x: torch.func.grad(lambda y: torch.relu(y + y).sum())(x),
    ],
)
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own use of it
def test_derivatives_by_torch_func_are_eager_s(tmp_path, x, function):
    compiled = torch.compile(function, backend=pytest_passbench.backend(candidate(tmp_path / "c")))
    with pytest.warns(PassWarning, match="a graph that needs gradients runs in eager"):
        outputs = compiled(x)
    torch.testing.assert_close(outputs, function(x))


@torch.no_grad()
def test_each_graph_of_a_program_with_breaks_has_its_passes(tmp_path, x):
    model, backend = Breaking(), pytest_passbench.backend(candidate(tmp_path / "c"))
    torch.testing.assert_close(torch.compile(model, backend=backend)(x), model(x))
    assert backend.report().matches == {"add_relu": 2}


@torch.no_grad()
def test_dynamic_sizes_have_the_passes_for_each_size_up_to_a_limit(tmp_path):
    model, backend = Model(), pytest_passbench.backend(candidate(tmp_path / "c"))
    compiled = torch.compile(model, backend=backend, dynamic=True)
    for size in range(2, 14):
        x = torch.randn(size, 8)
        torch.testing.assert_close(compiled(x), model(x))
    assert 2 <= backend.report().matches["add_relu"] <= 8


@torch.no_grad()
def test_random_numbers_are_eager_s_at_the_first_call_of_each_size(tmp_path):
    def function(x):
        return F.dropout(torch.relu(x + x), training=True)

    backend = pytest_passbench.backend(candidate(tmp_path / "c"))
    compiled = torch.compile(function, backend=backend, dynamic=True)
    for size in (5, 6, 7):
        outputs = []
        for program in (compiled, function):
            torch.manual_seed(0)
            outputs.append(program(torch.arange(8.0 * size).view(size, 8)))
        torch.testing.assert_close(*outputs)
    assert backend.report().matches == {"add_relu": 3}


def test_dynamic_sizes_have_the_passes_in_inference_mode_too(tmp_path):
    model, backend = Model(), pytest_passbench.backend(candidate(tmp_path / "c"))
    compiled = torch.compile(model, backend=backend, dynamic=True)
    with torch.inference_mode():
        for size in (3, 5):
            x = torch.randn(size, 8)
            torch.testing.assert_close(compiled(x), model(x))
    assert backend.report().matches == {"add_relu": 2}


def test_arithmetic_on_sizes_is_a_number_once_the_sizes_are():
    graph = torch.fx.Graph()
    size, x = graph.placeholder("size"), graph.placeholder("x")
    larger = graph.call_function(torch.sym_max, (size, 4))
    graph.output(graph.call_method("new_zeros", (x, graph.call_function(operator.xor, (larger, 1)))))
    module = specialised(torch.fx.GraphModule({}, graph), [6, torch.ones(2)])
    assert [node.args[1:] for node in module.graph.find_nodes(op="call_method", target="new_zeros")] == [(7,)]
    assert not list(module.graph.find_nodes(op="call_function", target=torch.sym_max))


@torch.no_grad()
@pytest.mark.parametrize("make", [pytest_passbench.backend, pytest_passbench.inductor_pass])
def test_inputs_that_share_memory_with_one_that_is_written_run_in_eager(tmp_path, x, make):
    applied, y, z = make(candidate(tmp_path / "c")), torch.randn(4, 8), torch.randn(32)

    def function(x, y, z):
        total = x + y
        z.mul_(2)
        return torch.relu(total)

    def rewritten(graph, _inputs):
        applied(graph.graph)
        graph.recompile()
        return graph.forward

    compiled = torch.compile(function, backend=applied if make is pytest_passbench.backend else rewritten)
    torch.testing.assert_close(compiled(x, y, z), torch.relu(x + y))
    assert applied.report().matches == {"add_relu": 1}
    if make is pytest_passbench.inductor_pass:
        torch._dynamo.reset()  # TorchInductor's own guard would compile again
    expected = torch.relu(x + y)
    with pytest.warns(PassWarning, match="an input that it changes shares memory with another"):
        outputs = compiled(x, y, x.view(-1))
    torch.testing.assert_close(outputs, expected)
    assert applied.report().matches == {"add_relu": 1}


@torch.no_grad()
def test_a_call_with_a_size_that_no_plan_was_recorded_for_runs_in_eager(tmp_path, x):
    def function(x, y):
        rows = x[y > 0]
        return torch.relu(rows + rows)

    backend = pytest_passbench.backend(candidate(tmp_path / "c"))
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(function, backend=backend, fullgraph=True)
        torch.testing.assert_close(compiled(x, x + 0), function(x, x))
        with pytest.warns(PassWarning, match="a call of a graph ran in eager: expected size"):
            outputs = compiled(x, x.abs())
    torch.testing.assert_close(outputs, function(x, x.abs()))
    assert backend.report().matches == {"add_relu": 1}


@torch.no_grad()
def test_a_tensor_that_is_negated_lazily_is_given_to_no_kernel(tmp_path):
    backend, z = pytest_passbench.backend(candidate(tmp_path / "c")), torch.randn(4, 8, dtype=torch.complex64)
    compiled = torch.compile(lambda x: torch.relu(x + x), backend=backend)
    assert z.conj().imag.is_neg()
    with pytest.warns(PassWarning, match="a tensor that is negated or conjugated lazily, which no kernel can get"):
        outputs = compiled(z.conj().imag)
    torch.testing.assert_close(outputs, torch.relu(-2 * z.imag))


ROWS_OF_COLUMNS = """    out = torch.empty(x.shape)
    lib.add_relu_t(x.data_ptr(), y.data_ptr(), out, *x.shape)
    return out
"""


@torch.no_grad()
@pytest.mark.parametrize("body", [ROWS_OF_COLUMNS, "    return torch.clamp(x + y, min=0).contiguous()\n"])
@pytest.mark.parametrize("reads", [lambda z: z.as_strided((4, 8), (1, 4)), lambda z: z.t().view(32)])
def test_an_operator_that_reads_strides_finds_eager_s(tmp_path, body, reads):
    backend = pytest_passbench.backend(candidate(tmp_path / "c", body))
    compiled = torch.compile(lambda x, y: reads(torch.relu(x + y)), backend=backend)
    x, y = torch.randn(8, 4).t(), torch.randn(8, 4).t()
    assert torch.equal(compiled(x, y), reads(torch.relu(x + y)))
    assert backend.report().matches == {"add_relu": 1}


@torch.no_grad()
def test_threads_share_a_compiled_model(tmp_path, x):
    model, failures = Model(), []
    compiled = torch.compile(model, backend=pytest_passbench.backend(candidate(tmp_path / "c")))

    def call():
        with torch.no_grad():
            for _ in range(50):
                if not torch.equal(compiled(x), model(x)):
                    failures.append(1)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@torch.no_grad()
@pytest.mark.parametrize("place", [lambda x: x.flatten()[1:9], lambda x: x[:, ::2]])
def test_inputs_in_the_middle_of_memory_and_with_gaps_are_as_eager(tmp_path, place):
    backend = pytest_passbench.backend(candidate(tmp_path / "c"))
    compiled = torch.compile(lambda x, y: torch.relu(x + y) * 2, backend=backend)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PassWarning)  # for the input with gaps the pass is left out
        for x in (torch.randn(4, 9), torch.randn(4, 9)):
            torch.testing.assert_close(compiled(place(x), place(x) + 1), torch.relu(place(x) * 2 + 1) * 2)


WRITES_IN_PLACE = "    lib.add_relu(x, y, x, x.numel())\n    return x\n"


@torch.no_grad()
def test_a_kernel_that_changes_an_input_of_the_graph_is_named_and_changes_none(tmp_path, x):
    backend, y = pytest_passbench.backend(candidate(tmp_path / "c", WRITES_IN_PLACE)), torch.randn(4, 8)
    before = x.clone()
    with pytest.warns(PassWarning, match="a kernel of add_relu changes an input of the graph"):
        outputs = torch.compile(lambda x, y: torch.relu(x + y), backend=backend)(x, y)
    torch.testing.assert_close(outputs, torch.relu(before + y))
    torch.testing.assert_close(x, before)


@torch.no_grad()
def test_a_kernel_that_writes_to_a_view_of_what_it_reads_runs_in_eager(tmp_path):
    backend, x = pytest_passbench.backend(candidate(tmp_path / "c", WRITES_IN_PLACE)), torch.randn(12)
    compiled = torch.compile(lambda x: torch.relu((x * 2)[:8] + (x * 2)[4:]), backend=backend)
    shared = torch.compile(lambda x: views(x * 2), backend=backend)
    torch.testing.assert_close(compiled(x), torch.relu(x[:8] * 2 + x[4:] * 2))
    with pytest.warns(
        PassWarning, match="a graph runs in eager: argument a0, which the plan writes to, shares memory"
    ):
        outputs = shared(x)
    torch.testing.assert_close(outputs, views(x * 2))


def views(x):
    return torch.relu(x[:8] + x[4:])


@torch.no_grad()
def test_a_graph_that_raises_for_random_numbers_is_left_to_inductor(tmp_path):
    applied = pytest_passbench.inductor_pass(candidate(tmp_path / "c"))

    def rewritten(graph, _inputs):
        applied(graph.graph)
        return graph.forward

    compiled = torch.compile(lambda x, y: torch.relu(torch.linalg.cholesky(x) + y), backend=rewritten)
    with pytest.warns(PassWarning, match=r"is left to TorchInductor: with random inputs, _?LinAlgError"):
        outputs = compiled(torch.eye(8), torch.ones(8, 8))
    torch.testing.assert_close(outputs, torch.eye(8) + 1)


DOUBLED = '''
import torch
from pytest_passbench.kernels import cpp

lib = cpp.load("""
#include "passbench.h"
extern "C" void doubled(pb::in x, pb::out out, int64_t n, pb::dtype dtype) {}
""")


def pattern(x):
    return x * 2


def replacement_args(x):
    return (x,)


def doubled(x):
    out = torch.empty_like(x)
    lib.doubled(x, out, x.numel(), x.dtype)
    return out


def replacement_func():
    return doubled
'''


@torch.no_grad()
def test_a_pass_with_a_dtype_that_its_kernel_has_not_is_left_out_alone(tmp_path, x):
    folder = candidate(tmp_path / "c")
    (folder / "doubled.py").write_text(DOUBLED)
    (folder / "sorted_output_pass_rule_names.json").write_text(json.dumps(["add_relu", "doubled"]))
    backend = pytest_passbench.backend(folder)
    compiled = torch.compile(lambda x, y: (torch.relu(x + x), y * 2), backend=backend)
    with pytest.warns(PassWarning, match="pass doubled: passbench.h has no dtype torch.float64; it is left out"):
        outputs = compiled(x, x.double())
    torch.testing.assert_close(outputs, (torch.relu(x + x), x.double() * 2))
    assert backend.report().matches == {"add_relu": 1}


def test_a_kernel_in_cpp_is_never_given_a_device_s_memory(tmp_path):
    passes = DeployedPasses(open_directory(candidate(tmp_path / "c"), None))
    tensor = Argument(contiguous("float32", (4, 8)), "cuda:0")
    kernel = passes.kernel(Request("add_relu", ({"tensor": 0}, {"tensor": 1}), (tensor, tensor)))
    elsewhere = torch.empty(4, 8, device="meta")  # in place of a device's
    with pytest.raises(PassError, match="a C\\+\\+ kernel reads the CPU's memory"):
        kernel(elsewhere, elsewhere)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")  # torch's own use of it
@torch.no_grad()
def test_inductor_compiles_what_no_pass_matches(tmp_path, x):
    from torch._inductor import config

    model, applied = Model(), pytest_passbench.inductor_pass(candidate(tmp_path / "c"))
    with config.patch(pre_grad_custom_pass=applied):
        compiled = torch.compile(model)
        for inputs in (x, -x):
            torch.testing.assert_close(compiled(inputs), model(inputs))
    assert applied.report().matches == {"add_relu": 1}


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")  # torch's own use of it
def test_inductor_has_graphs_that_need_gradients_without_passes(tmp_path, x):
    from torch._inductor import config

    applied, y = pytest_passbench.inductor_pass(candidate(tmp_path / "c")), torch.ones(4, 8, requires_grad=True)
    with config.patch(pre_grad_custom_pass=applied):
        compiled = torch.compile(lambda x, y: torch.relu(x + y) * y)
        with pytest.warns(PassWarning, match="a graph that needs gradients is left to TorchInductor"):
            outputs = compiled(x, y)
    expected = torch.relu(x + y) * y
    torch.testing.assert_close(*(torch.autograd.grad(value.sum(), y) for value in (outputs, expected)))


def test_a_folder_that_is_no_candidate_is_named(tmp_path):
    with pytest.raises(UserError, match="the candidate directory does not exist"):
        pytest_passbench.backend(tmp_path / "none")


def test_a_pass_that_cannot_be_imported_is_named_with_its_line(tmp_path):
    folder = candidate(tmp_path / "c")
    (folder / "add_relu.py").write_text("import nowhere\n" + ADD_RELU)
    with pytest.raises(PassError, match=r"pass add_relu: import failed: .*add_relu.py:1\)"):
        pytest_passbench.backend(folder)


def test_passes_for_single_tasks_need_the_name_of_one(tmp_path, x):
    folder = tmp_path / "c"
    folder.mkdir()
    candidate(folder / "some-task")
    with pytest.raises(UserError, match=r"no passes for all tasks .*some-task"):
        pytest_passbench.backend(folder)
    with torch.no_grad():
        model, backend = Model(), pytest_passbench.backend(folder, task="some-task")
        torch.testing.assert_close(torch.compile(model, backend=backend)(x), model(x))
    assert backend.report().matches == {"add_relu": 1}
