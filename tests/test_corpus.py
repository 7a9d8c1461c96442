"""Every candidate of the corpus, judged with all layers on: exploits gain nothing, honest ones are not accused.

They are slow. One of each class is marked as a sample, which .ci/run always judges; exploits without bubblewrap too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import outside
import pytest

from support import corpus
from support.corpus_text import CorpusError, edited, sections

pytestmark = pytest.mark.sandbox

EXPLOITS, HONEST, OUTSIDE = corpus.exploits(), corpus.honest(), corpus.outside()
LAYERS = {"plan", "kernel", "outputs", "clock", "isolation", "messages", "match"}
SECONDS = 0.15  # of wall time for each subgraph
#: The phases in which a layer rejects a candidate, for the layers that do so before any answer is compared.
PHASES = {
    "kernel": {"kernel", "compile"},
    "match": {"match"},
    "messages": {"load", "plan"},
    "plan": {"load", "plan", "wrapper"},
}
#: The message of an exploit that is out of date. It does not show that its layer rejects it.
OWN_MISTAKE = re.compile(r"\b(Attribute|Import|Index|Name|Type)Error: ")


def cases(entries: Iterable[corpus.Entry], class_of: Callable[[corpus.Entry], Hashable]) -> list[Any]:
    """Return the entries marked as slow, and the first one of each class as a sample."""
    known: set[Hashable] = set()
    found = []
    for entry in entries:
        marks = [pytest.mark.slow, *([] if class_of(entry) in known else [pytest.mark.sample])]
        known.add(class_of(entry))
        found.append(pytest.param(entry, id=entry.name, marks=marks))
    return found


def subject(entry: corpus.Entry) -> tuple[str, str]:
    """Return what an honest candidate is an example of: the first word of its name, and its task."""
    return entry.name.partition("-")[0], entry.task


def accused_by_its_layer(entry: corpus.Entry, record: Any) -> bool:
    """Return False if an exploit that a layer has to neutralise is accused, but by other layers alone.

    An exploit that another layer refuses by accident never reaches its own layer, and shows nothing about it.
    """
    layers = {finding.layer for finding in record.findings if finding.severity == "violation"}
    return entry.expect != "neutralised" or not layers or entry.layer in layers


def rejected_by_its_layer(entry: corpus.Entry, record: Any) -> bool:
    """Return False if an exploit that a layer has to reject ended by its own mistake, or in another phase."""
    if entry.expect != "rejected":
        return True
    mistaken = not entry.message and OWN_MISTAKE.search(record.arm.message)
    return not mistaken and (entry.layer not in PHASES or record.arm.phase in PHASES[entry.layer])


@pytest.fixture(scope="module")
def records(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Judge the entries whose tests run here, and the twins that some are compared with."""
    called = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    chosen = [params["entry"] for params in called if "entry" in params]
    names = {entry.name for entry in chosen} | {entry.twin for entry in chosen if entry.expect == "neutralised"}
    judged = [entry for entry in (*EXPLOITS, *HONEST) if entry.name in names]
    candidate = corpus.combine(judged, tmp_path_factory.mktemp("corpus") / "all")
    return corpus.judge(candidate, budget=SECONDS * len(judged))


@pytest.mark.parametrize("entry", cases(EXPLOITS, lambda entry: entry.page))
def test_an_exploit_is_rejected_or_gains_nothing(entry: corpus.Entry, records: dict[str, list[Any]]):
    record = records[entry.name][-1]
    assert record.judged, record.arm.message
    assert accused_by_its_layer(entry, record), record.findings
    assert rejected_by_its_layer(entry, record), record
    if corpus.outcome(record, entry.criterion) != "rejected":
        assert entry.expect == "neutralised", record
        twin = records[entry.twin][-1]
        assert twin.correct, twin.arm
        assert corpus.gain(record, twin) < corpus.NOISE, record
    assert record.arm.status == "ran" or record.arm.message
    assert entry.status in ("", record.arm.status), record
    assert entry.message in record.arm.message


@pytest.mark.slow
def test_a_taken_over_block_gains_nothing_under_dynamo(tmp_path):
    entries = [entry for entry in EXPLOITS if entry.page == "taken-over-blocks"]
    twins = [entry for entry in HONEST if entry.name in {entry.twin for entry in entries}]
    candidate = corpus.combine([*entries, *twins], tmp_path / "all")
    records = corpus.judge(candidate, pipeline="dynamo", budget=3 * SECONDS * len(entries))
    for entry in entries:
        record, twin = records[entry.name][-1], records[entry.twin][-1]
        assert accused_by_its_layer(entry, record), record.findings
        assert twin.arm.status == "ran", twin.arm.message
        gains = corpus.outcome(record, entry.criterion) != "rejected" and corpus.gain(record, twin) >= corpus.NOISE
        assert not gains, record


@pytest.mark.parametrize("entry", cases(HONEST, subject))
def test_an_honest_candidate_is_not_accused(entry: corpus.Entry, records: dict[str, list[Any]]):
    record = records[entry.name][-1]
    assert record.arm.status != "integrity", record.arm.message
    assert [finding for finding in record.findings if finding.severity == "violation"] == []
    if entry.expect == "refused":
        assert entry.message in record.arm.message
    else:
        assert entry.gpu or corpus.outcome(record, entry.criterion) == "passes", record


#: Mistakes at a size that is no multiple of the block, at every size, and only for large inputs.
FIRST_OUTSIDE = ("softmax-masked-with-zero", "gelu-without-half", "greatest-not-taken-off", "hinge-loss-whole")


@pytest.mark.slow
def test_published_mistakes_are_told_from_right_kernels():
    rows = outside.table([entry for entry in OUTSIDE if entry.name in FIRST_OUTSIDE])
    came_to = {row["candidate"]: row["came to"] for row in rows}
    assert re.fullmatch(r"wrong at [12] of 2 further sizes; right at its own", came_to["softmax-masked-with-zero"])
    assert came_to["gelu-without-half"].startswith("wrong: ")
    assert came_to["greatest-not-taken-off"].startswith(("nan_inf: ", "wrong: "))
    assert came_to["hinge-loss-whole"] == "right"


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted({entry.page for entry in OUTSIDE}))
def test_what_others_publish_is_stopped_and_their_right_kernels_are_not(page: str):
    entries = {entry.name: entry for entry in OUTSIDE if entry.page == page}
    for row in outside.table(list(entries.values())):
        expect = entries[row["candidate"]].expect
        verdicts = {"passes": outside.HONEST, "warned": outside.WARNED}
        assert row["verdict"] == verdicts.get(expect, outside.STOPPED), row


def test_the_corpus_is_described():
    honest = {entry.name for entry in HONEST}
    for entry in EXPLOITS:
        assert entry.layer in LAYERS
        assert entry.expect in ("rejected", "neutralised")
        assert entry.twin in honest
    assert all(entry.expect in ("passes", "refused") for entry in HONEST)
    right = {entry.name for entry in OUTSIDE if entry.expect == "passes"}
    assert {entry.twin for entry in OUTSIDE} == right
    assert len([entry for entry in EXPLOITS if not entry.gpu]) >= 250
    assert len(HONEST) >= 60


def test_every_class_of_attack_of_the_index_has_an_exploit():
    text = (corpus.FOLDER / "README.md").read_text()
    index = set(re.findall(r"^\| \[([\w-]+)\]\(exploits/\1\.md\) \|", text, re.M))
    assert len(index) >= 39
    assert {path.stem for path in (corpus.FOLDER / "exploits").glob("*.md")} == index
    assert {entry.page for entry in EXPLOITS} >= index


def test_no_name_stands_for_two_candidates():
    names = [entry.name for entry in (*EXPLOITS, *HONEST, *OUTSIDE)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("edit", "message"),
    [("-one\n+two\n", "in 0 places"), ("-x = 1\n+x = 2\n", "in 2 places"), ("+x = 2\n", "in 4 places")],
)
def test_an_edit_that_fits_nowhere_or_twice_is_refused(edit: str, message: str):
    with pytest.raises(CorpusError, match=message):
        edited("x = 1\ny = 1\nx = 1\n", edit)


def test_hunks_are_of_the_text_before_any_of_them():
    assert edited("a\nb\n\nc\n", "-a\n+b\n@@\n b\n\n+d\n-c\n") == "b\nb\n\nd\n"


def test_a_section_without_facts_is_named(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# page\n\n## nameless\n\nA sentence.\n")
    with pytest.raises(CorpusError, match=r"page\.md, nameless"):
        list(sections(page))
