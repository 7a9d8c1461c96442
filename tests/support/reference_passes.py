"""Passes whose kernel is their own pattern, and graphs made from text, for the tests of rewriting."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from pytest_passbench.reader.importing import LoadedPass
from pytest_passbench.reader.local import LocalKernels, as_passes
from pytest_passbench.rewrite import apply, pipelines
from pytest_passbench.rewrite.apply import Rewritten
from pytest_passbench.suite.build import build_graph


def graph(body: str, inputs: int = 1) -> torch.fx.GraphModule:
    """Return the graph with these lines of ``forward``, which use in_0, in_1, ... and end with a return."""
    arguments = ", ".join(f"in_{i}" for i in range(inputs))
    text = f"def forward({arguments}):\n" + textwrap.indent(textwrap.dedent(body).strip(), "    ") + "\n"
    return build_graph(text, "test")


def reference(pattern: Callable[..., Any], name: str = "reference") -> LoadedPass:
    """Return a pass whose kernel is the pattern itself, run on copies."""

    def wrapper(*args: Any) -> Any:
        return pattern(*[a.clone() if isinstance(a, torch.Tensor) else a for a in args])

    names = pattern.__code__.co_varnames[: pattern.__code__.co_argcount]
    scope: dict[str, Any] = {}
    exec(f"def replacement_args({', '.join(names)}): return ({', '.join(names)},)", scope)
    return LoadedPass(name, pattern, scope["replacement_args"], lambda: wrapper, wrapper, Path(f"{name}.py"))


def apply_passes(gm: torch.fx.GraphModule, loaded: list[LoadedPass], inputs: list[Any]) -> Rewritten:
    """Apply passes as data, their wrappers called in this process."""
    return apply.apply_passes(gm, as_passes(loaded), inputs, LocalKernels(loaded))


def build(
    pipeline: str, gm: torch.fx.GraphModule, loaded: list[LoadedPass], inputs: list[Any]
) -> pipelines.BuiltGraph:
    """Build a pipeline from passes as data, their wrappers called in this process."""
    return pipelines.build(pipeline, gm, as_passes(loaded), inputs, LocalKernels(loaded))


def rewrite(body: str, pattern: Callable[..., Any], *tensors: torch.Tensor) -> tuple[Rewritten, torch.fx.GraphModule]:
    """Return the graph after the reference pass, and the graph before."""
    before = graph(body, len(tensors))
    with torch.no_grad():
        return apply_passes(before, [reference(pattern)], list(tensors)), before


def check(body: str, pattern: Callable[..., Any], *tensors: torch.Tensor, matches: int = 1) -> Rewritten:
    """Rewrite, and require ``matches`` matches and unchanged results (outputs, and inputs written in place)."""
    result, before = rewrite(body, pattern, *tensors)
    report = result.reports[0]
    assert report.matches == matches, report.miss
    one, other = [t.clone() for t in tensors], [t.clone() for t in tensors]
    with torch.no_grad():
        expected, found = before(*one), result.module(*other)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(other, one)
    return result
