"""Right and wrong answers to the subgraphs of the suite: which are accepted under which criterion?

    python benchmarks/wrong_answers.py                         the whole suite
    python benchmarks/wrong_answers.py --sample 400 --processes 2

Each graph is changed in known ways (benchmarks/answers.py), and run in this process on inputs that are drawn as the
judge draws them. Outputs are judged by the judge's own rules. A change that has no effect in float64, on inputs of
eight times the size, is no wrong answer, and is left out. Prints the share of each answer that is accepted, by dtype,
and the tasks that accept a wrong one at t = -5. Writes reports/benchmarks/wrong_answers.json.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from answers import FUSED, SCALED, Absent, Answer, Changed, answers
from engine import REPORTS, Case, cases, machine, spread, write
from tabulate import tabulate

from pytest_passbench.core.criterion import levels
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.float64_errors import ReferenceOutput, references
from pytest_passbench.core.ladder import BITWISE, NEVER, first_correct, right_at
from pytest_passbench.core.record import RAN
from pytest_passbench.judge.inputs import Inputs
from pytest_passbench.judge.verify.compare import compare
from pytest_passbench.judge.verify.outputs import Output, OutputForm
from pytest_passbench.judge.verify.standing import Accuracy
from pytest_passbench.protocol import KIND_OTHER_TYPE, KIND_TENSOR
from pytest_passbench.runner.program import in_float64
from pytest_passbench.suite.build import build_graph

KEY = b"the inputs of the wrong answers!"
LONGEST = 50_000.0  # microseconds of eager
AT = (-7, -5, -3, -1)
"""The t at which the ladder is shown."""

SAME = 1e-9
"""The part of an output's greatest value by which equal programs in float64 differ at most."""

#: Answers that may be right: some differ little more than by rounding, and some changes may have no effect.
SUBTLE = (FUSED, SCALED, "tanh GELU", "sigmoid GELU", "eps x 10", "no eps", "lower precision")
Row = dict[str, Any]


def main() -> None:
    """Judge the answers, write and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sample", type=int, metavar="N", help="so many subgraphs, evenly over the times of eager")
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="work in so many processes")
    args = parser.parse_args()
    chosen = cases(0.0, LONGEST)
    chosen = spread(chosen, args.sample) if args.sample else chosen
    with multiprocessing.get_context("spawn").Pool(args.processes) as pool:
        rows = [row for found in pool.imap(judged, chosen, chunksize=4) for row in found]
        pool.close()
        pool.join()
    REPORTS.mkdir(parents=True, exist_ok=True)
    summary = summarise(rows)
    write("wrong_answers", {"machine": machine(), "subgraphs": len(chosen), **summary})
    show(summary, len(chosen))


def judged(case: Case) -> list[Row]:
    """Return a row for each answer to a subgraph, in an order that does not depend on chance."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    with torch.no_grad():
        try:
            return list(_judged(case))
        except (UserError, RuntimeError) as error:
            return [{"case": case.name, "failed": str(error)[:200]}]


def _judged(case: Case) -> Iterator[Row]:
    source = case.task.graphs[case.subgraph.graph]
    module, inputs = build_graph(source, case.name), Inputs(case.subgraph.inputs, KEY)
    first, other = (inputs.call(inputs.draw(1), 0) for _ in range(2))
    eager = Changed(module, {}).answer(first)
    expected = [_output(value) for value in eager]
    exact = _exact(source, case.name, first)
    found = references(*([output.value for output in outputs] for outputs in (exact, expected)))
    about = {"case": case.name, "task": case.task.id, "dtype": case.subgraph.dtype}
    null = found is not None and all(reference.accepts_null(first) for reference in found)
    for answer in answers(module, first, eager):
        try:
            outputs = [_output(value) for value in answer.call(first)]
        except (Absent, RuntimeError):  # the change has no meaning for these shapes
            continue
        if len(outputs) != len(expected):
            continue
        row = {**about, "answer": answer.kind, "place": answer.place, **_verdict(expected, outputs, found)}
        if not answer.place and answer.kind != FUSED and row["first"] == BITWISE:
            continue  # integers are not scaled, and a row of one element is its mean
        if answer.place and (row["first"] <= -5 or row["accurate"]) and _same(module, answer, other):
            continue
        yield {**row, "null_accurate": null}


def _exact(source: str, name: str, inputs: Sequence[torch.Tensor]) -> list[Output]:
    module = in_float64(build_graph(source, name), list(inputs))
    return [_output(value) for value in Changed(module, {}).answer(inputs)]


def _verdict(expected: list[Output], outputs: list[Output], found: list[ReferenceOutput] | None) -> Row:
    verdict = compare(expected, outputs, -5, [""] * len(expected))
    first, accuracy = first_correct(verdict.correct_from), Accuracy()
    accurate = None
    if found is not None and verdict.status == RAN:
        accuracy.add([reference.errors(output.value) for reference, output in zip(found, outputs, strict=True)])
        accurate = accuracy.accurate
    ratios = {"greatest": accuracy.greatest_ratios, "mean": accuracy.mean_ratios}
    return {"first": first if verdict.status == RAN else NEVER, "accurate": accurate, **ratios}


def _same(module: Any, answer: Answer, inputs: Sequence[torch.Tensor]) -> bool:
    """Return True if an answer equals eager's in float64, also on inputs beyond the recorded range."""
    far = [value.double() * 8 if value.is_floating_point() else value for value in inputs]
    try:
        ours, theirs = Changed(module, {}).answer(far), answer.call(far)
    except (Absent, RuntimeError):
        return False
    return all(_equal(a, b) for a, b in zip(ours, theirs, strict=True))


def _equal(a: Any, b: Any) -> bool:
    if not isinstance(a, torch.Tensor) or a.shape != b.shape:
        return a is b
    if not a.is_floating_point():
        return bool((a == b).all())
    same = ((a - b).abs() <= SAME * a.abs().nan_to_num(0.0, 0.0, 0.0).max()) if a.numel() else a == b
    return bool((same | (a == b) | (a.isnan() & b.isnan())).all())


def _output(value: Any) -> Output:
    if not isinstance(value, torch.Tensor):
        return Output(OutputForm(KIND_OTHER_TYPE, "", "", (), ()), 0, None)
    plain = value.contiguous()
    dtype = str(value.dtype).removeprefix("torch.")
    return Output(OutputForm(KIND_TENSOR, dtype, "cpu", tuple(plain.shape), tuple(plain.stride())), 0, plain)


def summarise(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the shares accepted by answer, dtype and criterion, and the tasks that accept a wrong answer."""
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    failed = [row for row in rows if "failed" in row]
    for row in rows:
        if "failed" not in row:
            groups[row["answer"], row["dtype"]].append(row)
    shares = [
        {"answer": answer, "dtype": dtype, "answers": len(items), "fp64": _share(items, "fp64", -5),
         "accuracy_known": sum(row["accurate"] is not None for row in items),
         **{f"t = {t}": _share(items, "ladder", t) for t in AT}}
        for (answer, dtype), items in sorted(groups.items(), key=lambda pair: (pair[0][0] not in SUBTLE[:2], pair[0]))
    ]  # fmt: skip
    plain = [row for row in rows if row.get("answer") not in (None, *SUBTLE)]
    accepting = {criterion: _accepting(plain, criterion) for criterion in ("ladder", "fp64")}
    inaccurate = [_named(row) for row in groups_of(groups, FUSED) if not _right(row, "fp64", -5)]
    scaled = [_named(row) for row in groups_of(groups, SCALED) if _right(row, "fp64", -5)]
    return {"shares": shares, "accepting": accepting, "plainly_wrong": len(plain), "fused_rejected": inaccurate,
            "scaled_accepted": scaled, "failed": failed}  # fmt: skip


def groups_of(groups: Mapping[tuple[str, str], list[Row]], answer: str) -> list[Row]:
    """Return the rows of an answer, of all dtypes."""
    return [row for (kind, _), items in groups.items() if kind == answer for row in items]


def _named(row: Row) -> Row:
    return {name: row[name] for name in ("case", "place", "first", "greatest", "mean")}


def _accepting(rows: Sequence[Row], criterion: str) -> dict[str, list[str]]:
    """Return for each task that accepts a plainly wrong answer at t = -5 what it accepts."""
    found: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        if _right(row, criterion, -5):
            found[row["task"]].add(f"{row['answer']} ({row['place'] or 'all'})")
    return {task: sorted(what) for task, what in sorted(found.items())}


def _share(rows: Sequence[Row], criterion: str, t: int) -> float:
    return sum(map(partial(_right, criterion=criterion, t=t), rows)) / len(rows)


def _right(row: Row, criterion: Any, t: int) -> bool:
    """Return True if an answer is accepted under a criterion without the null guard."""
    return right_at(*levels(criterion, row["first"], NEVER, row["accurate"], False), t)


def show(summary: Mapping[str, Any], subgraphs: int) -> None:
    """Print the table as Markdown, and the tasks."""
    columns = ("fp64", *(f"t = {t}" for t in AT))
    body = [
        [share["answer"], share["dtype"], share["answers"], *(f"{100 * share[name]:.1f}" for name in columns)]
        for share in summary["shares"]
    ]
    print(f"accepted, in %, of the answers to {subgraphs} subgraphs")
    print(tabulate(body, ["answer", "dtype", "answers", *columns], tablefmt="github", disable_numparse=True))
    for criterion, tasks in summary["accepting"].items():
        print(
            f"\n{len(tasks)} tasks accept a plainly wrong answer ({criterion}{', t = -5' * (criterion == 'ladder')}):"
        )
        for task, what in tasks.items():
            print(f"  {task}: {', '.join(what)}")
    for name in ("fused_rejected", "scaled_accepted", "failed"):
        print(f"\n{name}: {len(summary[name])}")
        for row in summary[name][:20]:
            print("  " + json.dumps(row))


if __name__ == "__main__":
    main()
