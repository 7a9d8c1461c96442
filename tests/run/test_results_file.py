"""Results files: written, read back, refused and merged."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_passbench.commands.main import main
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.files import write_text
from pytest_passbench.core.record import (
    HARNESS_FAIL,
    STATUSES,
    Against,
    ArmResult,
    Finding,
    PassReport,
    Record,
    Speed,
    Stored,
)
from pytest_passbench.core.run import Run, digest
from pytest_passbench.run import results_check, results_file
from pytest_passbench.run.merge import merge
from pytest_passbench.score import board
from support.made_records import record_of, run_of

text = st.text(max_size=20)
number = st.floats(allow_nan=False)  # NaN is not equal to itself; it has a test of its own
severity = st.sampled_from(["violation", "warning", "error"])
level = st.sampled_from([*range(-11, 2), 99])
error = st.floats(0.0, allow_nan=False)
positive = st.floats(1e-6, 1e6)
speeds = st.builds(
    Speed,
    ratio=positive,
    low=st.floats(0.0, 1e-6),
    high=st.floats(1e6, math.inf),
    verdict=st.sampled_from(["FASTER", "SLOWER", "SAME", "UNRESOLVED"]),
    eager_us=positive,
    other_us=positive,
    pairs=st.lists(st.lists(st.floats(-results_check.MAX_LOG, results_check.MAX_LOG), max_size=2), max_size=2),
)


def arms(outputs):
    return st.builds(
        ArmResult,
        status=st.sampled_from([status for status in STATUSES if status != HARNESS_FAIL]),
        phase=text,
        message=text,
        output=text,
        correct_from=st.lists(level, min_size=outputs, max_size=outputs),
        worst=text,
        error64=st.lists(error, max_size=2),
        speed=st.none() | speeds,
        speed_note=text,
    )


passes = st.builds(
    PassReport, text, st.integers(0, 9), miss=text, nearness=st.floats(0.0, 1.0), untuned=st.booleans()
)


earlier = st.builds(
    Stored, st.sampled_from(STATUSES), st.booleans(), st.none() | speeds, st.none() | speeds, text
)


def records_of(outputs):
    return st.builds(
        Record,
        task=text,
        subgraph=text,
        candidate=text,
        dtypes=st.lists(text, min_size=outputs, max_size=outputs),
        tolerance=st.integers(-10, 0),
        null_from=level,
        eager_error64=st.lists(error, max_size=2),
        arm=arms(outputs),
        baselines=st.dictionaries(text, arms(outputs), max_size=1),
        passes=st.lists(passes, max_size=1),
        findings=st.lists(st.builds(Finding, text, text, severity, text, text, st.integers(0, 9)), max_size=1),
        durations=st.dictionaries(text, st.floats(0.0, 1e9), max_size=2),
        against=st.none() | st.builds(Against, arms(outputs)),
        stored=st.none() | earlier,
    )


lost = st.builds(Record, text, text, text, arm=st.builds(ArmResult, status=st.just(HARNESS_FAIL), message=text))
records = st.integers(1, 3).flatmap(records_of) | lost
values = st.none() | st.booleans() | st.integers() | number | text | st.lists(text, max_size=2)
#: The names of settings are words that the schema does not have, since it restricts the values of others.
objects = st.dictionaries(text.map("own {}".format), values, max_size=3)
runs = st.builds(
    Run,
    settings=objects,
    environment=objects,
    tasks=st.lists(text, max_size=2),
    records=st.lists(records, max_size=2, unique_by=lambda one: (one.task, one.subgraph, one.candidate)),
    candidates=st.just([]),  # without a list a record may have any name
    seed=objects,
    noise=objects,
    started=text,
    finished=text,
    interrupted=st.booleans(),
    selected=st.dictionaries(text, st.dictionaries(text, st.integers(0, 9), max_size=2), max_size=2),
)


@given(run=runs)
def test_reading_gives_back_what_was_written(tmp_path_factory, run):
    folder = tmp_path_factory.mktemp("run")
    results_file.write(folder, run)
    read = results_file.read(folder / "results.json")
    assert read.untouched
    assert replace(read, digest="", untouched=False) == run


def small(task="one", subgraph="a", **changes):
    run = run_of(
        record_of(task, subgraph),
        settings={
            "tolerance": -5,
            "score": {"b": 0.1, "p": 0.0, "interpretation": "default"},
            "shard": [1, 2],
        },
        environment={"torch": "2.6", "host": task},
        noise={"width": 0.01},
        started="2026-01-01T10:00:00+00:00",
        finished="2026-01-01T11:00:00+00:00",
    )
    return replace(run, **changes)


def test_a_reference_and_an_earlier_run_are_kept(tmp_path):
    run = small(against={"name": "old", "path": "old", "content_hash": "bb"})
    run.compared = {"file": "x.json", "digest": "cc", "candidates": {"mine": "old"}, "noise": {"delta": 0.02}}
    one = run.records[0]
    one.against = Against(replace(one.arm), replace(one.arm.speed, verdict="SAME"))
    one.stored = Stored("ran", True, replace(one.arm.speed), replace(one.arm.speed))
    read = results_file.read(stored(tmp_path, run))
    assert (read.records, read.against, read.compared) == (run.records, run.against, run.compared)
    assert read.records[0].head_to_head.verdict == "SAME"


def test_runs_against_different_references_are_not_merged(tmp_path):
    shards = []
    for name, content in (("one", "aa"), ("two", "bb")):
        folder = tmp_path / name
        shards.append((folder, results_file.read(stored(folder, small(name, against={"content_hash": content})))))
    with pytest.raises(UserError, match="against another reference"):
        merge(shards)
    shards = []
    for name, content in (("three", "aa"), ("four", "bb")):
        folder = tmp_path / name
        shards.append((folder, results_file.read(stored(folder, small(name, compared={"digest": content})))))
    with pytest.raises(UserError, match="compared with another run"):
        merge(shards)
    same = [(path, replace(run, compared={}, against={"content_hash": "aa"})) for path, run in shards]
    assert merge(same).against == {"content_hash": "aa"}


def stored(folder, run):
    results_file.write(folder, run)
    return folder / "results.json"


def test_the_file_has_its_schema_and_only_standard_json(tmp_path):
    run = small()
    run.records[0].arm.error64 = [math.nan, math.inf]
    run.environment["least"] = -math.inf
    file = stored(tmp_path, run)

    def refuse(constant):
        raise AssertionError(constant)

    data = json.loads(file.read_text(), parse_constant=refuse)
    assert data["schema"] == "passbench/1"
    nan, infinite = results_file.read(file).records[0].arm.error64
    assert math.isnan(nan)
    assert infinite == math.inf
    assert results_file.read(file).environment["least"] == -math.inf


def test_a_second_write_replaces_the_file_and_leaves_nothing_beside_it(tmp_path):
    stored(tmp_path, small())
    stored(tmp_path, small(interrupted=True))
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]
    assert results_file.read(tmp_path).interrupted


@pytest.mark.parametrize(
    ("old", "new"),
    [('"ratio": 2.0', '"ratio": 20.0'), ('"content_hash": "ab', '"content_hash": "aa')],
)
def test_the_digest_tells_an_edited_file(tmp_path, old, new):
    file = stored(tmp_path, small())
    file.write_text(file.read_text().replace(old, new))
    assert not results_file.read(file).untouched


def test_a_field_that_this_version_does_not_know_is_covered_by_the_digest_too(tmp_path):
    file = stored(tmp_path, small())
    data = json.loads(file.read_text())
    data["weather"] = "fine"
    file.write_text(json.dumps(data))
    assert not results_file.read(file).untouched
    file.write_text(json.dumps({**data, "digest": digest(data)}))
    assert results_file.read(file).untouched


@pytest.mark.parametrize(
    ("status", "levels", "null_from", "t", "right"),
    [
        ("ran", [-6, -5], 99, -5, True),
        ("ran", [-6, -4], 99, -5, False),
        ("ran", [-6, -4], 99, -4, True),
        ("ran", [99], 99, 0, False),
        ("ran", [], 99, 0, False),
        ("nan_inf", [-11], 99, 0, False),
        ("ran", [-1], -1, 0, False),  # zeros, where zeros pass
        ("ran", [-2], -1, 0, True),  # correct already where zeros are not
        ("ran", [-11], -11, 0, True),  # eager itself answers with an input: equal bit for bit
    ],
)
def test_an_answer_is_right_at_the_runs_t_and_no_null_answer(status, levels, null_from, t, right):
    record = Record("t", "s", "c", tolerance=t, null_from=null_from, arm=ArmResult(status, correct_from=levels))
    assert record.correct is right


def test_a_folder_that_cannot_be_written_to(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file/run.*cannot be written"):
        results_file.write(tmp_path / "file" / "run", small())


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("records", 0, "arm", "status"), "splendid", r"arm.status: 'splendid' is not"),
        (("records", 0, "arm", "correct_from"), ["-5"], r"records\[0\].arm.correct_from\[0\]: '-5' is not"),
        (("records", 0, "arm", "speed", "ratio"), -1.0, "speed.ratio: -1.0 breaks minimum 1e-12"),
        (("records", 0, "arm", "speed", "eager_us"), {"float": "nan"}, "speed.eager_us: nan breaks maximum"),
        (("records", 0, "arm", "speed", "high"), "wide", "speed.high: 'wide' is not of type number"),
        (("records", 0, "durations"), {"read": -1.0}, "durations.read: -1.0 breaks minimum 0"),
        (("records", 0, "arm", "speed", "low"), 3.0, "3.0 to 2.04 is not an interval"),
        (("records", 0, "baselines"), [], "another form|baselines"),
        (("records", 0, "dtypes"), 3, r"records\[0\].dtypes: 3 is not of type array"),
        (("tasks",), "one", "tasks: 'one' is not of type array"),
        (("candidates",), ["one"], r"candidates\[0\]: 'one' is not of type object"),
        (("records", 0, "arm", "colour"), "red", "colour"),
        (("records",), None, "records: None is not"),
        (("selected",), {"mine": {"one": 10**12}}, "selected.mine.one: 1000000000000 breaks maximum"),
        (("selected",), {"mine": [3]}, r"selected.mine: \[3\] is not"),
        (("settings", "task_ids"), 5, "settings.task_ids: 5 is not of type array"),
        (("settings", "suite"), ["lite"], "settings.suite: .* is not of type string"),
        (("settings", "shard"), [0, 0], r"settings.shard\[0\]: 0 breaks minimum 1"),
        (("settings", "shard"), ["a", 1], r"settings.shard\[0\]: 'a' is not of type integer"),
        (("settings", "shard"), [1], r"settings.shard: \[1\] breaks minItems 2"),
        (("settings", "shard"), [5, 1], "settings.shard: 5 of 1"),
    ],
)
def test_a_record_of_another_form_is_refused(tmp_path, path, value, said):
    file = stored(tmp_path, small())
    data = json.loads(file.read_text())
    target = data
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    file.write_text(json.dumps(data))
    with pytest.raises(UserError, match=said) as caught:
        results_file.read(file)
    assert str(file) in str(caught.value)


def test_shards_become_one_run(tmp_path, capsys):
    one = stored(tmp_path / "1", small("one"))
    two = stored(tmp_path / "2", small("two", interrupted=True, noise={"width": 0.03}))
    assert main(["merge", str(tmp_path / "all"), str(one), str(two.parent)]) == 0
    assert "Merged from 2 files" in capsys.readouterr().out
    run = results_file.read(tmp_path / "all")
    assert run.untouched
    assert [record.task for record in run.records] == run.tasks == ["one", "two"]
    assert run.interrupted
    assert run.noise == {"width": 0.03}
    assert run.environment == {"torch": "2.6"}
    assert [part["environment"]["host"] for part in run.parts] == ["one", "two"]
    assert "# PassBench results" in (tmp_path / "all" / "results.md").read_text()
    assert "<title>PassBench: " in (tmp_path / "all" / "report.html").read_text()


def test_a_merged_run_knows_what_was_to_be_judged_and_which_shard_is_lacking(tmp_path, capsys):
    parts = [
        small(name, settings={"shard": [number, 3]}, selected={"mine": {name: 4}})
        for number, name in ((1, "one"), (3, "three"))
    ]
    files = [stored(tmp_path / str(number), part) for number, part in enumerate(parts)]
    assert main(["merge", str(tmp_path / "all"), *map(str, files)]) == 0
    said = capsys.readouterr().out
    assert "Shard 2 of 3 is not among them" in said
    assert "were not judged" in said
    run = results_file.read(tmp_path / "all")
    assert run.selected == {"mine": {"one": 4, "three": 4}}
    assert board.metric(run, "mine", "correct") == len(run.records) / 8


def test_a_shard_that_was_interrupted_and_went_on_is_merged_with_the_others(tmp_path):
    other = small("two")
    other.settings = {**other.settings, "shard": [2, 2], "resume": "latest"}
    files = [stored(tmp_path / "1", small("one")), stored(tmp_path / "2", other)]
    assert main(["merge", str(tmp_path / "all"), *map(str, files)]) == 0
    assert results_file.read(tmp_path / "all").tasks == ["one", "two"]


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path):
    (tmp_path / "results.json").mkdir()
    with pytest.raises(UserError, match="cannot be written"):
        write_text(tmp_path / "results.json", "{}")
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


def test_merging_twice_keeps_every_part(tmp_path):
    shards = [results_file.read(stored(tmp_path / name, small(name))) for name in ("a", "b", "c")]
    first = merge([(tmp_path / "a", shards[0]), (tmp_path / "b", shards[1])])
    both = results_file.read(stored(tmp_path / "ab", first))
    assert len(merge([(tmp_path / "ab", both), (tmp_path / "c", shards[2])]).parts) == 3


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (small("one"), "one::a"),
        (small("two", settings={"tolerance": -4}), "has score|has tolerance"),
        (small("two", settings={**small().settings, "made_up": 1}), "has made_up = 1, .* has None"),
        (small("two", candidates=[{"name": "mine", "content_hash": "bb"}]), "other candidates"),
        (small("two", hashes={"editions": ["2"]}), "edition 2 of the suite, .* edition 1"),
    ],
)
def test_what_does_not_belong_together_is_refused(tmp_path, capsys, other, said):
    files = [stored(tmp_path / "1", small("one")), stored(tmp_path / "2", other)]
    assert main(["merge", str(tmp_path / "all"), *map(str, files)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert str(files[1]) in line
    assert re.search(said, line)
    assert not (tmp_path / "all").exists()


def test_an_edited_shard_is_refused(tmp_path, capsys):
    file = stored(tmp_path / "1", small())
    file.write_text(file.read_text().replace('"ratio": 2.0', '"ratio": 20.0'))
    assert main(["merge", str(tmp_path / "all"), str(file)]) == 1
    assert "changed after it was written" in capsys.readouterr().err


def test_merge_overwrites_nothing(tmp_path, capsys):
    one, two = stored(tmp_path / "1", small("one")), stored(tmp_path / "2", small("two"))
    before = one.read_text()
    assert main(["merge", str(one), str(two)]) == 1
    assert "exists already" in capsys.readouterr().err
    assert one.read_text() == before


def test_a_closed_pipe_is_no_error(tmp_path):
    file = stored(tmp_path, small())
    code = "from pytest_passbench.commands.main import main; raise SystemExit(main())"
    command = f"{sys.executable} -c '{code}' show {file} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_without_jsonschema_reading_says_so_and_judging_goes_on(monkeypatch, tmp_path):
    """A bare machine with a device may lack it: code that judges and writes must not import it."""
    path = tmp_path / "results.json"
    results_file.write(tmp_path, Run())
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    monkeypatch.delitem(sys.modules, "pytest_passbench.run.results_check", raising=False)
    monkeypatch.delattr("pytest_passbench.run.results_check", raising=False)
    with pytest.raises(UserError, match="cannot be checked without the package jsonschema") as caught:
        results_file.read(path)
    assert "install jsonschema" in str(caught.value)
    code = (
        "import sys\nsys.modules['jsonschema'] = None\n"
        "import pytest_passbench.plugin, pytest_passbench.judge.session, pytest_passbench.run.ledger\n"
        "import pytest_passbench.run.results_file, pytest_passbench.run.journal, pytest_passbench.api\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
