"""The board's page in headless Chromium: sorted, filtered, on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_passbench.report.board import conditions, page, standings
from pytest_passbench.report.board.conditions import RunFile
from shared.chromium import Browser, browser
from support import sample_runs

pytestmark = pytest.mark.browser

ROWS = "[...document.querySelectorAll('.rows tbody tr')].filter(row => !row.hidden)"
NAMES = f"{ROWS}.map(row => row.cells[0].dataset.value)"
HEADS = "[...document.querySelectorAll('.rows thead button')]"


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Browser, Path]]:
    first = sample_runs.full_run()
    other = sample_runs.full_run()
    other.candidates[0]["content_hash"] = "another"
    files = [RunFile(Path(f"{index}/results.json"), run) for index, run in enumerate((first, other))]
    groups = conditions.grouped(files)
    path = tmp_path_factory.mktemp("page") / "board.html"
    path.write_text(page.render([standings.standings(group) for group in groups]), encoding="utf-8")
    with browser(tmp_path_factory.mktemp("profile")) as chromium:
        yield chromium, path
        assert chromium.said == []


def test_rows_are_sorted_and_filtered(board):
    chromium, path = board
    chromium.screen(1400)
    chromium.open(path)
    names = chromium.run(NAMES)
    assert len(names) > 2
    chromium.run(f"{HEADS}[0].click()")
    assert chromium.run(NAMES) == sorted(names)
    chromium.run(f"{HEADS}[0].click()")
    assert chromium.run(NAMES) == sorted(names, reverse=True)
    chromium.run(f"{HEADS}.find(head => head.textContent === 'AS').click()")
    assert chromium.run(NAMES) == names
    chromium.run("document.querySelector('input').value = 'EAGER'")
    chromium.run("document.querySelector('input').dispatchEvent(new Event('input'))")
    assert chromium.run(NAMES) == ["eager (reference)"]


@pytest.mark.parametrize("width", [390, 1400])
def test_nothing_is_clipped(board, width):
    chromium, path = board
    chromium.screen(width)
    chromium.open(path)
    assert chromium.run("document.documentElement.scrollWidth") <= width
    cells = "[...document.querySelectorAll('.rows, .rows td, .rows tbody th')]"
    inside = f"{cells}.every(cell => cell.scrollWidth <= cell.clientWidth + 1)"
    assert chromium.run(inside)
    ends = "Math.max(...[...document.querySelectorAll('.rows td')].map(cell => cell.getBoundingClientRect().right))"
    assert chromium.run(ends) <= width
