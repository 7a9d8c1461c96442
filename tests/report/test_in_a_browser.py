"""The report in headless Chromium: sorted, filtered, opened, printed, dark; no message, no request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_passbench.report import html
from pytest_passbench.report.report import report_of
from shared.chromium import Browser, browser
from support import sample_runs

pytestmark = pytest.mark.browser

SHOWN = "[...document.querySelectorAll('#rows > tbody')].filter((one) => !one.hidden)"
NAMES = f"{SHOWN}.map((one) => one.querySelector('button.open').textContent)"
FOCUSED = "document.activeElement.textContent"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    runs = {"troubled": sample_runs.troubled_run(), "full": sample_runs.full_run()}
    paths = {name: folder / f"{name}.html" for name in runs}
    for name, run in runs.items():
        paths[name].write_text(html.page(report_of(run)), encoding="utf-8")
    return paths


@pytest.fixture
def troubled(chromium: Browser, pages: dict[str, Path]) -> Iterator[Browser]:
    """Open the page of a run with failures. After each test, require that the page requested and logged nothing."""
    yield from opened(chromium, pages["troubled"])


@pytest.fixture
def full(chromium: Browser, pages: dict[str, Path]) -> Iterator[Browser]:
    yield from opened(chromium, pages["full"])


def opened(chromium: Browser, path: Path) -> Iterator[Browser]:
    chromium.screen(1280)
    chromium.open(path, "#board")  # with a fragment, the page does not open the first failure
    yield chromium
    assert chromium.said == []
    assert chromium.requests == [path.resolve().as_uri()]


def click(page: Browser, selector: str) -> None:
    page.run(f"document.querySelector({selector!r}).click()")


CHARTS = "[...document.querySelectorAll('figure > svg.chart')]"
ROOM = f"{CHARTS}.map((one) => [one.getBoundingClientRect().width, one.parentElement.clientWidth])"


def test_charts_fill_their_place_and_say_their_values(troubled):
    troubled.run("document.getElementById('curves').scrollIntoView()")
    widths = troubled.run(ROOM)
    assert len(widths) == 2
    assert all(width == pytest.approx(room, abs=1) for width, room in widths)
    assert "torch.testing" in troubled.run(f"{CHARTS}[0].textContent")
    inside = """[...document.querySelectorAll('figure > svg.chart text')].every((one) => {
      const [text, page] = [one.getBoundingClientRect(), document.body.getBoundingClientRect()];
      return text.left >= page.left && text.right <= page.right; })"""
    for width in (390, 768, 1280):
        troubled.screen(width)
        assert troubled.run(inside), f"a label is cut at {width} pixels"


def test_a_click_on_an_interval_opens_its_task(troubled):
    troubled.run("document.querySelector('svg.chart a[href=\"#t5\"]').dispatchEvent("
                 "new MouseEvent('click', {bubbles: true, cancelable: true}))")  # fmt: skip
    troubled.until(lambda: troubled.run(FOCUSED) == "mean-pow-2222")
    assert troubled.run("document.querySelector('#t5 button.open').ariaExpanded") == "true"


def test_columns_sort_both_ways_and_say_so(troubled):
    before = troubled.run(NAMES)
    click(troubled, "[data-column=speed]")
    falling = troubled.run(NAMES)
    assert falling[:2] == ["gelu-add-1111", "mean-pow-2222"]  # rows without a speed-up come last in both orders
    assert troubled.run("document.querySelector('[data-column=speed]').closest('th').ariaSort") == "descending"
    click(troubled, "[data-column=speed]")
    assert troubled.run(NAMES)[:2] == ["mean-pow-2222", "gelu-add-1111"]
    click(troubled, "[data-column=task]")
    assert troubled.run(NAMES) == sorted(before)
    sorts = "[...document.querySelectorAll('#rows > thead th[aria-sort]')].map((one) => one.ariaSort)"
    assert sorted(troubled.run(sorts)) == ["ascending", *["none"] * 6]


def test_the_filter_takes_words_of_any_column_and_groups(troubled):
    troubled.press("/")
    troubled.type("crash")
    assert troubled.run(NAMES) == ["softmax-to-4444"]
    assert troubled.run("document.getElementById('count').textContent") == "1 of 6 rows"
    troubled.press("Escape")
    assert len(troubled.run(NAMES)) == 6
    troubled.type("gelu /")
    assert troubled.run("document.getElementById('filter').value") == "gelu /"
    troubled.press("Escape")
    troubled.run(
        "(() => { const it = document.getElementById('group');"
        " it.value = 'findings'; it.dispatchEvent(new Event('input')); })()"
    )
    assert troubled.run(NAMES) == ["silu-mul-3333", "gelu-add-1111"]


def test_rows_open_by_keys_alone(troubled):
    troubled.press("/")
    troubled.press("ArrowDown")
    assert troubled.run(FOCUSED) == "silu-mul-3333"
    troubled.press("ArrowDown")
    troubled.press("Enter")
    assert troubled.run("document.activeElement.ariaExpanded") == "true"
    troubled.press("ArrowDown")
    assert troubled.run(FOCUSED) == "model-1"
    troubled.press("ArrowRight")
    assert troubled.run("document.activeElement.ariaExpanded") == "true"
    troubled.press("ArrowLeft")
    assert troubled.run("document.activeElement.ariaExpanded") == "false"
    troubled.press("End")
    assert troubled.run(FOCUSED) == "mean-pow-2222"
    troubled.press("Home")
    assert troubled.run(FOCUSED) == "silu-mul-3333"


def test_a_subgraph_opens_to_its_rounds_plan_errors_and_command(troubled):
    click(troubled, "#t5 button.open")
    click(troubled, "#t5 .inner button.open")
    rounds = sample_runs.troubled_run().records[2].arm.speed.pairs
    marks = "document.querySelectorAll('.detail .chart .point path').length"
    assert troubled.run(marks) == sum(map(len, rounds))
    said = troubled.run("document.querySelector('.detail').textContent")
    assert f"{sum(map(len, rounds))} rounds" in said
    assert "mean_pow covers mean, pow" in said
    assert "launch fused_mean(a0, a1, b0, " in said
    assert "pytest --passbench --candidate=candidates/troubled --passbench-task=mean-pow-2222" in said
    assert "inductor0.900 [0.8" in said


def test_a_failure_opens_to_its_message_and_finding(troubled):
    for task in ("t0", "t1"):
        click(troubled, f"#{task} button.open")
        troubled.run(f"document.querySelectorAll('#{task} .inner button.open').forEach((one) => one.click())")
    said = troubled.run("document.getElementById('rows').textContent")
    assert "violation: source/torch-op, fuse.py:12" in said
    assert "message (measure)the process was killed by signal 11" in said
    assert "printedsegmentation\nfault" in said
    assert "fuse_softmax: nearest: tmp_2 = mul: expected silu, found chunk" in said


def test_failures_come_first_and_the_first_is_open(chromium, pages):
    chromium.screen(1280)
    chromium.open(pages["troubled"])
    tops = "['tasks', 'speed'].map((id) => document.getElementById(id).getBoundingClientRect().top)"
    tasks, speed = chromium.run(tops)
    assert tasks < speed
    opened_rows = "document.querySelectorAll('#rows > tbody > tr:first-child [aria-expanded=true]')"
    assert chromium.run(f"{opened_rows}.length") == 1
    assert "source/torch-op, fuse.py:12" in chromium.run("document.querySelector('#t0 .detail').textContent")
    chromium.open(pages["full"])
    tasks, speed = chromium.run(tops)
    assert tasks > speed


def test_an_address_opens_its_task(chromium, pages):
    chromium.open(pages["troubled"], "#t1")
    chromium.until(lambda: chromium.run(FOCUSED) == "softmax-to-4444")
    assert chromium.run("document.querySelector('#t1 button.open').ariaExpanded") == "true"


def test_the_whole_suite_is_quick_to_use(full):
    assert full.run("document.querySelectorAll('#rows > tbody').length") == sample_runs.TASKS
    seconds = full.run(
        "(() => { const start = performance.now();"
        " document.querySelector('[data-column=speed]').click();"
        " document.getElementById('filter').value = 'softmax';"
        " document.getElementById('filter').dispatchEvent(new Event('input'));"
        " document.querySelector('#rows > tbody:not([hidden]) button.open').click();"
        " return (performance.now() - start) / 1000; })()"
    )
    assert seconds < 2
    assert 0 < len(full.run(NAMES)) < sample_runs.TASKS
    assert full.run("document.querySelectorAll('#speed svg.chart a').length") > 100


@pytest.mark.parametrize("width", [390, 768, 1000, 1140, 1280])
def test_nothing_is_wider_than_the_screen(troubled, width):
    troubled.screen(width)
    click(troubled, "#t5 button.open")
    click(troubled, "#t5 .inner button.open")
    assert troubled.run("document.documentElement.scrollWidth") <= width
    assert troubled.run("document.getElementById('rows').offsetWidth <= document.querySelector('main').offsetWidth")


CONTRAST = """(() => {
  const rgb = (text) => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const light = (text) => {
    const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = rgb(text).map((v) => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (one) => {
    for (let at = one; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (!/, 0\\)$|transparent/.test(colour)) return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  const low = [];
  for (const one of document.querySelectorAll('body *')) {
    const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !one.offsetParent || one.closest('svg, script, .unseen')) continue;
    const [a, b] = [light(getComputedStyle(one).color), light(behind(one))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) low.push(`${one.className} ${one.textContent.slice(0, 20)} ${ratio.toFixed(1)}`);
  }
  return low;
})()"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_text_stands_out_from_what_is_behind_it(troubled, dark):
    troubled.screen(1280, dark=dark)
    click(troubled, "#t5 button.open")
    click(troubled, "#t5 .inner button.open")
    assert troubled.run(CONTRAST) == []
    paper = troubled.run("getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(15, 19, 24)" if dark else "rgb(255, 255, 255)")


def test_print_is_light_has_what_is_open_and_no_controls(troubled, tmp_path):
    troubled.screen(1280, dark=True)
    click(troubled, "#t1 button.open")
    troubled.call("Emulation.setEmulatedMedia", media="print",
                  features=[{"name": "prefers-color-scheme", "value": "dark"}])  # fmt: skip
    shown = "document.querySelector({!r}).checkVisibility()"
    assert troubled.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not troubled.run(shown.format(".tools"))
    assert troubled.run(shown.format("#t1 .inner"))
    troubled.call("Emulation.setEmulatedMedia", media="")
    troubled.pdf(tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").stat().st_size > 10_000


EVIL = "</script><script>document.title='caught'</script><img src=x onerror=\"document.title='caught'\"><b>bold</b>"


def test_what_a_candidate_wrote_does_nothing(chromium, tmp_path):
    run = sample_runs.troubled_run(EVIL)
    for record in run.records:
        record.task = record.subgraph = record.source = EVIL + record.subgraph
        record.arm.message = record.arm.output = record.arm.worst = record.dtype = EVIL
        for item in record.passes:
            item.name, item.plan, item.operators = EVIL, [EVIL], [EVIL]
        for finding in record.findings:
            finding.message = finding.file = finding.rule = EVIL
    path = tmp_path / "report.html"
    path.write_text(html.page(report_of(run)), encoding="utf-8")
    chromium.screen(1280)
    chromium.open(path)
    chromium.run("document.querySelectorAll('#rows > tbody > tr button.open:enabled').forEach((one) => one.click())")
    chromium.run("document.querySelectorAll('.inner button.open').forEach((one) => one.click())")
    for selector in (".chart polygon", ".inner", "b, img"):  # pointing at marks shows their values
        event = "new MouseEvent('mousemove', {bubbles: true})"
        chromium.run(f"document.querySelectorAll({selector!r}).forEach((one) => one.dispatchEvent({event}))")
    assert chromium.run("document.title").startswith("PassBench: </script>")
    assert chromium.run("document.querySelectorAll('b, img').length") == 0
    assert chromium.said == []
    assert chromium.requests == [path.resolve().as_uri()]
