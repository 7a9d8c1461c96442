"""The pictures of report.html in docs/img, taken of real runs in headless Chromium.

    python benchmarks/report_pictures.py spoil /tmp/spoiled
    pytest --passbench --candidate=candidates/cpu-fused --passbench-pipeline=direct --passbench-baseline=inductor
    pytest --passbench --candidate=/tmp/spoiled --passbench-pipeline=direct --passbench-budget=2m
    python benchmarks/report_pictures.py take reports/<first run> reports/<second run>

``spoil`` writes a copy of candidates/cpu-fused in which some passes are wrong, cheat, fail to compile, raise, or
match nothing. ``take`` makes the pages of both runs anew, with the code of this checkout, and writes
``docs/img/report-*.png``: the first run, a task of it opened, the same dark and on a phone; and the second.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

from pytest_passbench.candidate.layout import MANIFEST
from pytest_passbench.report import html
from pytest_passbench.report.report import report_of
from pytest_passbench.run import results_file
from shared.chromium import Browser, browser

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "img"
WIDTH, PHONE_WIDTH = 1200, 390

SPOILED = {
    "silu_mul.py": ("pb::silu(a)) * b", "pb::silu(a)) + b"),
    "softplus_bias.py": ("    return out", "    return torch.nn.functional.softplus(x + bias)"),
    "relu_squared.py": ('#include "passbench.h"', '#include "passbench.h"\nint undone() { return totl; }'),
    "global_response_norm.py": ("    out = torch.empty_like(",
                                '    raise ValueError("no kernel for this")\n    out = torch.empty_like('),
    "add_relu.py": ("def replacement_args",
                    "def pattern(x, y):\n    return torch.tanh(x + y)\n\n\ndef replacement_args"),
}  # fmt: skip
"""For files of cpu-fused: a text in the file, and the text that replaces it."""


def spoil(folder: Path) -> None:
    """Write the candidate with faults to a new folder."""
    shutil.copytree(ROOT / "candidates" / "cpu-fused", folder)
    for name, (old, new) in SPOILED.items():
        path = folder / name
        text = path.read_text()
        if old not in text:
            sys.exit(f"{name}: has no {old!r}, so it cannot be spoiled so")
        path.write_text(text.replace(old, new, 1))
    manifest = folder / MANIFEST
    names = [name for name in json.loads(manifest.read_text()) if name != "region"]  # it stands in for all
    manifest.write_text(json.dumps(names))


def take(first: Path, second: Path | None) -> None:
    """Write the pictures of a run, and of one with faults if there is one."""
    with tempfile.TemporaryDirectory() as scratch, browser(Path(scratch) / "profile") as page:
        full = made(first, Path(scratch) / "a.html")
        shot(page, full, "report-run", height=2050)
        if second is not None:
            shot(page, made(second, Path(scratch) / "b.html"), "report-failures", height=2250)
        shot(page, full, "report-dark", height=2050, dark=True)
        opened(page, full, "report-subgraph")
        shot(page, full, "report-phone", width=PHONE_WIDTH, height=2600)


def made(results: Path, path: Path) -> Path:
    """Write the page of a run anew and return its path. The page shows short paths of candidates, not a machine's."""
    run = results_file.read(results)
    for candidate in run.candidates:
        candidate["path"] = f"candidates/{candidate['name']}"
    path.write_text(html.page(report_of(run)), encoding="utf-8")
    return path


def shot(page: Browser, path: Path, name: str, height: int, width: int = WIDTH, dark: bool = False) -> None:
    """Write a picture of a page from its top."""
    page.screen(width, dark=dark)
    page.open(path)
    page.picture(IMAGES / f"{name}.png", height=height)
    print(f"docs/img/{name}.png")


def opened(page: Browser, path: Path, name: str) -> None:
    """Write a picture of the first task that is faster, with its first subgraph opened."""
    page.screen(WIDTH)
    page.open(path)
    tasks = "[...document.querySelectorAll('[id]')].filter(item => /^t[0-9]+$/.test(item.id))"
    task = "#" + page.run(f"{tasks}.find(item => item.textContent.includes('faster')).id")
    page.run(f"document.querySelector('{task} button.open').click()")
    page.run(f"document.querySelector('{task} .inner button.open').click()")
    page.picture(IMAGES / f"{name}.png", selector=task)
    print(f"docs/img/{name}.png")


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(required=True)
    spoiling = commands.add_parser("spoil", help="write the candidate with faults")
    spoiling.add_argument("folder", type=Path, help="a new folder")
    spoiling.set_defaults(run=lambda args: spoil(args.folder))
    taking = commands.add_parser("take", help="take the pictures")
    taking.add_argument("first", type=Path, help="a run's folder, or its results.json")
    taking.add_argument("second", type=Path, nargs="?", help="one of the candidate with faults")
    taking.set_defaults(run=lambda args: take(args.first, args.second))
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
