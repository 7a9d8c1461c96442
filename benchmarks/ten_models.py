"""Ten models of seven libraries with a candidate's passes, as `passbench try` judges them.

    python benchmarks/ten_models.py                            # all of them: 11 to 16 minutes on a quiet machine
    python benchmarks/ten_models.py pytorchcv/resnet18 --candidate candidates/trivial

Models are those of the forge: configurations with random weights, nothing is downloaded. Those of ``transformers``
are cut to two layers. A library that is not installed is left out. Results go to reports/benchmarks/ten_models.json
after each model. The next call goes on where they end, unless the candidate or the pipeline is another one.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tabulate import tabulate

from pytest_passbench.api.whole_model import tried
from pytest_passbench.candidate.layout import Candidate
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.settings import Settings
from pytest_passbench.forge.models import ModelCase, Variant
from pytest_passbench.forge.sources import all_cases

RESULTS = Path("reports/benchmarks/ten_models.json")
MODELS = {
    "transformers/bert": Variant(1, 128),
    "transformers/qwen2": Variant(1, 64),
    "timm/mobilenetv3_small_100": Variant(1, 224),
    "timm/convnext_atto": Variant(1, 224),
    "diffusers/AutoencoderTiny": Variant(1, 64),
    "torch-geometric/GraphSAGE": Variant(1, 1000),
    "torch-geometric/GIN": Variant(1, 1000),
    "monai/EfficientNetBN": Variant(1, 128),
    "pytorchcv/resnet18": Variant(1, 224),
    "vit-pytorch/vit.ViT": Variant(1, 224),
}
TIMEOUT_SECONDS = 600.0


def main() -> None:
    """Judge the models that have no result yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="LIBRARY/NAME", help="only these (default: the ten)")
    parser.add_argument("--candidate", type=Path, default=Path("candidates/cpu-fused"))
    parser.add_argument("--pipeline", choices=("dynamo", "direct", "inductor"), default="dynamo")
    parser.add_argument("--results", type=Path, default=RESULTS, help=f"default: {RESULTS}")
    args = parser.parse_args()
    torch.set_num_threads(1)
    settings = Settings(candidates=(args.candidate.resolve(),), suite="all", pipeline=args.pipeline,
                        timeout=TIMEOUT_SECONDS)  # fmt: skip
    content = f"{args.pipeline} {Candidate.open(args.candidate).content_hash}"
    results = _earlier(args.results, content)
    for case in _cases(args.models or list(MODELS)):
        if case.name not in results:
            results[case.name] = _judged(case, settings)
            args.results.parent.mkdir(parents=True, exist_ok=True)
            args.results.write_text(json.dumps({"content": content, "models": results}, indent=1) + "\n")
    print(table(results, args.candidate.name))


def _earlier(path: Path, content: str) -> dict[str, Any]:
    """Return the results of earlier calls with the same candidate and pipeline."""
    if not path.exists():
        return {}
    stored = json.loads(path.read_text())
    return dict(stored["models"]) if stored["content"] == content else {}


def _cases(names: list[str]) -> list[ModelCase]:
    installed = {case.name: case for case in all_cases()}
    for name in names:
        if name not in installed:
            print(f"{name}: its library is not installed", file=sys.stderr)
    return [
        replace(installed[name], variants=(MODELS.get(name, installed[name].variants[0]),))
        for name in names
        if name in installed
    ]


def _judged(case: ModelCase, settings: Settings) -> dict[str, Any]:
    """Return a model's report as JSON-ready builtins, or ``{"error": why}`` if it cannot be judged."""
    try:
        (report,) = tried(case, settings, lambda text: print(f"{case.name}: {text}", file=sys.stderr, flush=True))
    except UserError as error:
        return {"error": str(error)}
    return report.to_json()


def table(results: dict[str, Any], candidate: str) -> str:
    """Return a line per model: eager's time, both speed-ups, their ratio, right or not, and what kernels replace."""
    headers = (
        "model",
        "eager ms",
        "inductor",
        "passes",
        "passes to inductor",
        "t = -5",
        "fp64",
        "replaced",
        "time %",
    )
    rows = [_row(name, result, candidate) for name, result in results.items()]
    return tabulate(rows, headers, disable_numparse=True)


def _row(name: str, result: dict[str, Any], candidate: str) -> tuple[str, ...]:
    if "error" in result:
        return name, result["error"]
    inductor, passes = result["programs"]["inductor"], result["programs"][candidate]
    eager = passes["eager_us"] or inductor["eager_us"]
    return (
        name,
        "-" if eager is None else f"{eager / 1e3:.2f}",
        _interval(inductor["speed_up"]),
        _interval(passes["speed_up"]),
        _interval(result["inductor_to_passes"]),
        _answer(passes["agrees"]),
        _answer(passes["accurate"]),
        f"{result['replaced']}/{result['operators']}",
        f"{100 * (1 - result['left_share']):.0f}",
    )


def _interval(values: list[float] | None) -> str:
    return "-" if values is None else "{:.2f} [{:.2f}, {:.2f}]".format(*values)


def _answer(value: bool | None) -> str:
    return {True: "yes", False: "no", None: "-"}[value]


if __name__ == "__main__":
    main()
