"""Kernels of the generator on the suite: right, wrong or unsupported, for a subgraph of median size of each task.

    python benchmarks/generated.py [WORD ...] [--suite lite] [--speed] [--limit 90]

Each graph is split into regions that `fusion` has a kernel for. Convolutions, products and operators without a rule
stay eager's. The answers are compared with eager's at t = -5, and with the graph in float64 by the rule of
docs/accuracy.md. Every task runs in a process of its own. A line per task, then a table by class and the causes.
"""

from __future__ import annotations

import argparse
import copy
import json
import multiprocessing
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from tabulate import tabulate
from torch.fx import GraphModule

from pytest_passbench.core.escape import line
from pytest_passbench.core.float64_errors import ReferenceOutput
from pytest_passbench.core.ladder import T_STRICT, tolerances
from pytest_passbench.core.task import Task
from pytest_passbench.fusion import Unsupported, kernel
from pytest_passbench.fusion.kernel import FLAGS
from pytest_passbench.fusion.regions import reason
from pytest_passbench.kernels import cpp
from pytest_passbench.kernels.toolchain import CompileError
from pytest_passbench.rewrite.effects import thread_inplace
from pytest_passbench.runner.program import in_float64
from pytest_passbench.suite import find
from pytest_passbench.suite.build import build_graph
from pytest_passbench.suite.instantiate import example_inputs
from shared.regions import annotate, split

CLASSES = {
    "convolution": "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d",
    "product": "linear matmul bmm mm addmm baddbmm einsum scaled_dot_product_attention multi_head_attention_forward",
    "scan, sort": "cumsum sort topk histc scatter_add scatter scatter_reduce unique argmax argmin fft_fftn",
    "index": "embedding index_select gather index",
    "pool, resize": "avg_pool1d avg_pool2d max_pool1d max_pool2d interpolate adaptive_avg_pool2d adaptive_max_pool2d",
    "reduction": "layer_norm group_norm instance_norm rms_norm softmax mean sum var amax normalize norm",
    "elementwise": "add mul sub div relu gelu silu batch_norm pow exp sigmoid",
}  # fmt: skip
"""Each class and its operators. A task is of the first class that has one of its operators, or else of "layout"."""


def class_of(task: Task) -> str:
    """Return the class of a task."""
    names = set(task.header.ops)
    return next((name for name, words in CLASSES.items() if names & set(words.split())), "layout")


def fused(module: GraphModule) -> tuple[int, list[str], list[str]]:
    """Put kernels in place of an annotated graph's regions.

    Return how many there are, the calls that stay eager's with reasons, and the faults of regions.
    """
    reasons = {node: reason(node) for node in module.graph.nodes}
    left = [text for node, text in reasons.items() if text and node.op.startswith("call") and "no tensor" not in text]
    faults, count = [], 0
    for call in split(module, lambda node: not reasons[node]):
        name = str(call.target)
        try:
            program = kernel(getattr(module, name), [value.meta["val"] for value in call.args], name, overwrite=True)
        except Unsupported as error:
            faults.append(f"region: {error}")
            continue
        if program.arguments:
            delattr(module, name)
            setattr(module, name, program)
            cpp.load(program.source, flags=FLAGS).build()
            count += 1
    return count, left, faults


def answers(task: Task, speed: bool) -> dict[str, Any]:
    """Return what became of a task: counts, causes, and for each output whether it is right at t = -5 and in fp64."""
    subgraph = sorted(task.subgraphs, key=lambda item: item.elements)[len(task.subgraphs) // 2]
    eager = build_graph(task.graphs[subgraph.graph], task.id)
    thread_inplace(eager.graph)
    eager.recompile()
    inputs = example_inputs(subgraph, seed=1)
    module = copy.deepcopy(eager)
    annotate(module, _copied(inputs))
    start = time.perf_counter()
    count, left, faults = fused(module)
    outcome: dict[str, Any] = {"subgraph": subgraph.id, "kernels": count, "left": left, "faults": faults}
    outcome["seconds"] = round(time.perf_counter() - start, 2)
    with torch.no_grad():
        theirs, ours = eager(*_copied(inputs)), module(*_copied(inputs))
        outcome["t"] = [_strict(mine, wanted) for mine, wanted in zip(ours, theirs, strict=True)]
        outcome["fp64"] = _accurate(eager, inputs, theirs, ours)
        if speed:
            outcome["speed"] = _time(eager, inputs) / _time(module, inputs)
    return outcome


def _copied(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.clone() for tensor in inputs]


def _strict(mine: Any, wanted: Any) -> str:
    """Return why an output is not right at t = -5, or "" if it is."""
    if not isinstance(wanted, torch.Tensor):
        return "" if mine == wanted else "another number"
    if (mine.shape, mine.dtype) != (wanted.shape, wanted.dtype):
        return "another form"
    if not wanted.dtype.is_floating_point:
        return "" if torch.equal(mine, wanted) else f"{int((mine != wanted).sum())} elements"
    rtol, atol = tolerances(str(wanted.dtype).removeprefix("torch."), T_STRICT)
    beyond = ~torch.isclose(mine.double(), wanted.double(), rtol, atol, equal_nan=True)
    most = float(torch.where(beyond, (mine.double() - wanted.double()).abs(), 0.0).max()) if beyond.any() else 0.0
    return f"{int(beyond.sum())} of {beyond.numel()} by {most:.1e}" if beyond.any() else ""


def _accurate(
    eager: GraphModule, inputs: list[torch.Tensor], theirs: Sequence[Any], ours: Sequence[Any]
) -> list[str]:
    """Return for each output why it is not as accurate as eager's, or "" if it is."""
    try:
        exact = in_float64(copy.deepcopy(eager), _copied(inputs))(*_copied(inputs))
    except Exception as error:
        return [f"no float64 form: {line(str(error), 60)}"]
    causes = []
    for right, wanted, mine in zip(exact, theirs, ours, strict=True):
        errors = ReferenceOutput(right, wanted).errors(mine)
        causes.append("" if errors.within else f"max {errors.greatest_ratio:.1f}, mean {errors.mean_ratio:.2f}")
    return causes


def _time(program: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> float:
    times = []
    for _ in range(7):
        fresh = _copied(inputs)
        start = time.perf_counter()
        program(*fresh)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _child(name: str, speed: bool, end: Connection) -> None:
    torch.set_num_threads(1)
    try:
        end.send(answers(find.single(name).load(), speed))
    except CompileError as error:
        end.send({"error": "compile: " + line(str(error), 300)})
    except Exception as error:  # every fault of the generator is counted
        end.send({"error": f"{type(error).__name__}: {line(str(error), 300)}"})


def outcome(name: str, speed: bool, limit: float) -> dict[str, Any]:
    """Return what became of a task, tried in a process of its own for at most ``limit`` seconds."""
    here, there = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_child, args=(name, speed, there))
    process.start()
    there.close()
    try:
        return here.recv() if here.poll(limit) else {"error": f"more than {limit:g} s"}
    except EOFError:
        return {"error": "crash"}
    finally:
        process.kill()
        process.join()


def status(result: dict[str, Any]) -> str:
    """Return the outcome of a task in a word."""
    if "error" in result:
        return "broken"
    if not result["kernels"]:
        return "unsupported"
    if any(result["t"]):
        return "wrong" if any(result["fp64"]) else "right in fp64"
    return "right, not in fp64" if any(result["fp64"]) else "right"


COLUMNS = ("right", "right in fp64", "right, not in fp64", "wrong", "unsupported", "broken")


def main() -> None:
    """Print a line per task, the table by class, and the causes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--suite", default="full")
    parser.add_argument("--speed", action="store_true", help="also a quick ratio of eager's time to ours")
    parser.add_argument("--limit", type=float, default=90, metavar="SECONDS")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all outcomes into a file")
    args = parser.parse_args()
    table: dict[str, Counter[str]] = defaultdict(Counter)
    causes: Counter[str] = Counter()
    outcomes: dict[str, Any] = {}
    for ref in find.select(find.discover(find.installed_tasks()), args.suite):
        if args.words and not any(word in ref.id for word in args.words):
            continue
        result = outcomes[ref.id] = outcome(ref.id, args.speed, args.limit)
        table[class_of(ref.load())][status(result)] += 1
        causes.update(f"{text} stays eager's" for text in {*result.get("left", ()), *result.get("faults", ())})
        details = {key: value for key, value in result.items() if value and key != "subgraph"}
        print(f"{ref.id}: {status(result)}: {details}", flush=True)
    rows = [[name, *(counts[column] for column in COLUMNS)] for name, counts in table.items()]
    rows.append(["all", *(sum(counts[column] for counts in table.values()) for column in COLUMNS)])
    print(tabulate(rows, headers=["class", *COLUMNS]))
    print("\n".join(f"{count} {cause}" for cause, count in causes.most_common()))
    if args.json:
        args.json.write_text(json.dumps(outcomes, indent=1))


if __name__ == "__main__":
    main()
