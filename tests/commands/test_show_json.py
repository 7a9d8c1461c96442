"""``passbench show --json`` from the command line."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_passbench.commands.main import main
from pytest_passbench.core.record import ArmResult
from pytest_passbench.run import results_file
from support.made_records import record_of, right, run_of
from support.paths import DATA

CASES = json.loads((DATA / "es_vectors.json").read_text())


def judged(task, subgraph, arm):
    return record_of(task, subgraph, arm, baselines={"inductor": right(0.5)})


@pytest.fixture
def run_folder(tmp_path):
    run = run_of(
        judged("one", "a", right(2.0)),
        judged("one", "b", right(8.0)),
        judged("two", "c", ArmResult("integrity")),
        settings={"score": {"b": 0.1, "p": 0.0, "interpretation": "default"}},
    )
    results_file.write(tmp_path, run)
    return tmp_path


def output(capsys, *argv):
    assert main(["show", "--json", *map(str, argv)]) == 0
    return json.loads(capsys.readouterr().out)


def message(capsys, *argv):
    assert main(["show", "--json", *map(str, argv)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("passbench: error: ")
    return lines[0]


def test_a_bare_case(tmp_path, capsys):
    file = tmp_path / "case.json"
    file.write_text(json.dumps({"subgraphs": CASES[1]["subgraphs"], "interpretation": "mismatch_extended"}))
    got = output(capsys, file)
    for name in ("s", "es", "as", "es_published", "as_published"):
        assert got[name] == pytest.approx(CASES[1][name], rel=1e-9)


def test_options_win_over_the_file(tmp_path, capsys):
    case = next(case for case in CASES if case["p"] == 1.0 and case["b"] == 0.001)
    file = tmp_path / "case.json"
    file.write_text(json.dumps({"subgraphs": case["subgraphs"], "b": 0.5, "p": 0}))
    got = output(capsys, file, "--b=0.001", "--p=1", f"--interpretation={case['interpretation']}")
    assert got["as"] == pytest.approx(case["as"], rel=1e-9)


def test_a_results_file(run_folder, capsys):
    got = output(capsys, run_folder / "results.json")
    (mine,) = got["candidates"]
    assert mine["tasks"]["one"]["as"] == pytest.approx(4.0)
    assert mine["tasks"]["two"]["as"] == pytest.approx(0.1)
    assert got["as"] == mine["as"] == pytest.approx((4.0 * 0.1) ** 0.5)
    assert mine["correct"] == pytest.approx(2 / 3)
    assert mine["gmean"] == pytest.approx(4.0)
    (inductor,) = got["baselines"]
    assert inductor["name"] == "inductor"
    assert inductor["as"] == pytest.approx(0.5)


def test_the_folder_of_a_run_will_do(run_folder, capsys):
    assert output(capsys, run_folder, "--b=0.5")["as"] == pytest.approx((4.0 * 0.5) ** 0.5)
    assert output(capsys, run_folder, "--b=1")["as"] == pytest.approx(2.0)


def test_the_columns_at_another_t(tmp_path, run_folder, capsys):
    assert output(capsys, run_folder, "--tolerance=-10")["candidates"][0]["correct"] == pytest.approx(2 / 3)
    levels = [("ran", [-6], 2.0), ("ran", [-2], 8.0), ("pass_miss", [99], None)]
    keys = ("status", "correct_from", "speedup")
    file = tmp_path / "case.json"
    file.write_text(json.dumps({"subgraphs": [dict(zip(keys, level, strict=True)) for level in levels]}))
    strict, loose = output(capsys, file), output(capsys, file, "--tolerance=-2")
    assert (strict["tolerance"], strict["gmean"], strict["correct"], strict["fast1"]) == (-5, 2.0, 1 / 3, 1 / 3)
    assert (loose["tolerance"], loose["correct"]) == (-2, 2 / 3)
    assert loose["gmean"] == pytest.approx(4.0)
    assert strict["as"] == loose["as"]


def test_an_unmeasured_speed_gives_null(tmp_path, capsys):
    file = tmp_path / "case.json"
    subgraph = {"status": "correct", "dtypes": ["float32"], "correct_from": [-11], "speedup": None}
    file.write_text(json.dumps({"subgraphs": [subgraph]}))
    got = output(capsys, file)
    assert got["as"] is None
    assert set(got["es"].values()) == {None}
    assert got["unmeasured"] == 1


def test_an_edited_results_file_is_scored_with_a_warning(run_folder, capsys):
    file = run_folder / "results.json"
    file.write_text(file.read_text().replace('"ratio": 8.0', '"ratio": 80.0'))
    assert main(["show", "--json", str(file)]) == 0
    assert "changed after it was written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not JSON"),
        ('{"schema": "passbench/1", "rec', "is not JSON"),
        ("[]", "schema None"),
        ('{"schema": "passbench/9", "records": []}', "passbench/9"),
        ('{"schema": "passbench/1"}', "records"),
        ('{"schema": "passbench/1", "records": [{"task": "a"}]}', "records[0]"),
        ('{"schema": "passbench/1", "records": 3}', "records: 3 is not of type array"),
        ('{"subgraphs": [{"status": "crash", "speedup": 1' + "0" * 400 + "}]}", "a number of more than 64 digits"),
        ('{"subgraphs": [], "p": 1' + "0" * 400 + "}", "a number of more than 64 digits"),
        ('{"subgraphs": {}}', "not a list"),
        ('{"subgraphs": [3]}', "subgraph 0"),
        ('{"subgraphs": [{"status": "fine"}]}', "unknown status"),
        ('{"subgraphs": [{"status": ["correct"]}]}', "unknown status"),
        ('{"subgraphs": [{"status": "correct"}]}', "one per output"),
        ('{"subgraphs": [{"status": "correct", "dtypes": ["bool"], "correct_from": [0, 1]}]}', "one per output"),
        ('{"subgraphs": [{"status": "correct", "dtypes": 3, "correct_from": [0]}]}', "dtypes"),
        ('{"subgraphs": [{"status": "correct", "correct_from": "-5"}]}', "correct_from"),
        ('{"subgraphs": [{"status": "correct", "correct_from": [100]}]}', "-11 .. 98, or 99 for never"),
        ('{"subgraphs": [{"status": "correct", "correct_from": [0], "speedup": 0}]}', "speedup"),
        ('{"subgraphs": [], "b": "x"}', "not a number"),
        ('{"subgraphs": [], "interpretation": "mine"}', "unknown interpretation"),
    ],
)
def test_a_bad_file_gives_one_message_that_names_it(tmp_path, capsys, text, said):
    file = tmp_path / "results.json"
    file.write_text(text)
    found = message(capsys, file)
    assert str(file) in found
    assert said in found
    assert found.endswith(")")  # a remedy in brackets


def places(data, path=()):
    yield path
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield from places(value, (*path, key))


def put(data, path, value):
    if not path:
        return value
    copy = dict(data) if isinstance(data, dict) else list(data)
    copy[path[0]] = put(copy[path[0]], path[1:], value)
    return copy


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=3,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(st.data())
def test_whatever_stands_in_a_file_there_is_never_a_traceback(run_folder, capsys, data):
    stored = results_file.read(run_folder).to_json()
    whole = data.draw(st.sampled_from([stored, {"subgraphs": CASES[1]["subgraphs"]}]))
    where = data.draw(st.sampled_from(list(places(whole))))
    file = run_folder / "edited.json"
    file.write_text(json.dumps(put(whole, where, data.draw(anything))))
    code = main(["show", "--json", str(file)])
    said = capsys.readouterr()
    if code == 1:
        (line,) = [line for line in said.err.splitlines() if "warning" not in line]
        assert str(file) in line
    else:
        assert code == 0
        json.loads(said.out)


def test_a_cut_results_file(run_folder, capsys):
    file = run_folder / "results.json"
    file.write_text(file.read_text()[:-300])
    assert "cut short" in message(capsys, file)


def test_a_missing_file(tmp_path, capsys):
    assert "no such file" in message(capsys, tmp_path / "none.json")


@pytest.mark.parametrize("option", ["--html=page.html", "--full", "--criterion=fp64", "--format=markdown"])
def test_an_option_of_the_tables_is_refused(run_folder, capsys, option):
    assert main(["show", "--json", str(run_folder), option]) == 1
    assert f"{option.partition('=')[0]}: has no effect on --json" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--b=0", "--b=1.1", "--p=-1", "--interpretation=mine"])
def test_a_bad_option(run_folder, option):
    with pytest.raises(SystemExit) as stopped:
        main(["show", "--json", str(run_folder), option])
    assert stopped.value.code == 2


def test_it_imports_neither_torch_nor_numpy_nor_pytest(run_folder):
    code = (
        "import sys; from pytest_passbench.commands.main import main; code = main(sys.argv[1:]);"
        "heavy = {'torch', 'numpy', 'pytest', 'yaml'} & set(sys.modules); sys.exit(code or len(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code, "show", "--json", str(run_folder)], capture_output=True)
    assert done.returncode == 0, done.stderr


def test_the_tables_are_scored_with_the_parameters_too(run_folder, capsys):
    assert main(["show", str(run_folder), "--b=0.5"]) == 0
    caveat = "Scored with b = 0.5, p = 0, default; the run's own are b = 0.1, p = 0, default."
    assert caveat in capsys.readouterr().out
