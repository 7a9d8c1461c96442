"""The task file: round trips, speed of collecting, and one clear message for every mistake."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.task import ELEMENT_BYTES, Subgraph, Task, TaskHeader, TensorSpec
from pytest_passbench.suite.taskfile import dump_task, read_header, read_task, write_task
from support.paths import DATA

TASKS = DATA / "tasks"
GELU = TASKS / "gelu-add-layer_norm-3f2a.task.yaml"


def test_header_and_task():
    header = read_header(GELU)
    assert header == TaskHeader(
        id="gelu-add-layer_norm-3f2a",
        ops=("gelu", "add", "layer_norm"),
        sources=("transformers/bert",),
        tags=("lite",),
        subgraphs=3,
        modality="text",
    )
    task = read_task(GELU)
    assert task.header == header
    assert [s.graph for s in task.subgraphs] == ["g0", "g0", "g1"]
    first = task.subgraphs[0].inputs[0]
    assert first == TensorSpec(
        name="in_0", original_name="L_x_", shape=(1, 8, 16), dtype="float32", mean=0.01, std=0.98, min=-4.1, max=4.2
    )
    lines = GELU.read_text().splitlines()
    assert lines[task.graph_lines["g1"] - 1] == "    def forward(in_0, in_1, in_2, in_3):"


@pytest.mark.parametrize("path", sorted(TASKS.glob("*.yaml")), ids=lambda p: p.stem)
def test_dumping_gives_the_committed_text(path):
    assert dump_task(read_task(path)) == path.read_text()


def test_collecting_reads_the_header_alone(tmp_path):
    body = "graphs: [this is never read\n" + "- {name: x}\n" * 5000
    path = tmp_path / GELU.name
    path.write_text(GELU.read_text().split("---")[0] + "---\n" + body)
    assert read_header(path) == read_header(GELU)


def test_reading_imports_no_torch():
    code = (
        "import sys; from pathlib import Path; from pytest_passbench.suite.taskfile import read_task;"
        f"read_task(Path({str(GELU)!r})); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def changed(old, new):
    text = GELU.read_text()
    assert old in text
    return text.replace(old, new, 1)


IN_3 = "{name: in_3, shape: [16], dtype: float32, mean: 0.0, std: 0.02}"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("task/1", "task/2", r":1: format 'task/2' is not known \(this version reads 'task/1'\)"),
        ("passbench: task/1\n", "", "has no 'passbench'"),
        ("ops: [gelu, add, layer_norm]\n", "", "has no 'ops'"),
        ("ops: [gelu, add, layer_norm]", "ops: []", ":3: ops is empty"),
        ("ops: [gelu, add, layer_norm]", "ops: gelu", ":3: ops is 'gelu' .give a list"),
        ("ops: [gelu,", "ops: [yes,", r":3: ops\[0\] is True"),
        ("modality", "modalty", ":5: unknown key 'modalty'"),
        ("subgraphs: 3", "subgraphs: 4", ":22: 3 subgraphs, the header says 4"),
        ("subgraphs: 3", "subgraphs: many", ":7: subgraphs is 'many'"),
        ("id: gelu", "id: relu", ":2: id 'relu-add-layer_norm-3f2a' is not the file's name"),
        ("id: gelu-add", "id: gelu/add", ":2: id 'gelu/add-layer_norm-3f2a' is not an id"),
        ("---\n", "", "no second document"),
        ("graphs:\n", "graps:\n", ":9: unknown key 'graps'"),
        ("graph: g0", "graph: g7", r":24: subgraphs\[0\].graph: no graph 'g7' \(graphs are: g0, g1\)"),
        ("graph: g1", "graph: g0", ":16: no subgraph uses graph 'g1'"),
        ("id: bert-bfloat16-b2s8", "id: bert-float32-b1s8", "two subgraphs have the id 'bert-float32-b1s8'"),
        ("dtype: bfloat16\n", "dtype: bf16\n", "unknown dtype 'bf16'"),
        (IN_3, IN_3.replace("float32", "float31"), ":31: subgraphs.0..inputs.3..dtype: unknown dtype 'float31'"),
        (IN_3, IN_3.replace("[16]", "[-1]"), r":31: subgraphs.0..inputs.3..shape.0. is -1"),
        (IN_3, IN_3.replace("[16]", "16"), ":31: subgraphs.0..inputs.3..shape is 16"),
        (IN_3, IN_3.replace("0.02", "-0.02"), ":31: .*std is -0.02"),
        (IN_3, IN_3.replace("std: 0.02", "min: 2, max: 1"), "min 2.0 is above max 1.0"),
        (IN_3, IN_3.replace("std: 0.02", "data: [1, 2]"), "2 values in data, shape .16. holds 16"),
        (IN_3, IN_3.replace("std: 0.02", "std: wide"), "std is 'wide' .give a number"),
        (
            IN_3,
            IN_3.replace("in_3", "in_4"),
            "inputs are in_0, in_1, in_2, in_4; graph g0 takes in_0, in_1, in_2, in_3",
        ),
        (IN_3, IN_3.replace("shape: [16], ", ""), "has no 'shape'"),
        ("        tmp_1 = tmp_0 + in_1\n", "        for i in in_1: pass\n", ":13: a 'for' is not straight-line code"),
        ("        tmp_1 = tmp_0 + in_1\n", "        tmp_1 = tmp_9\n", ":13: name 'tmp_9' is used before"),
        ("tags: [lite]", "tags: [lite", "not YAML"),
        ("tags: [lite]", "tags: !!python/object/apply:os.system [ls]", "a tag, "),
        ("dtype: float32\n", "dtype: *x\n", "an anchor or alias"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path, old, new, message):
    path = tmp_path / GELU.name
    path.write_text(changed(old, new))
    with pytest.raises(UserError, match=message) as caught:
        read_task(path)
    assert str(caught.value).startswith(str(path))


def test_unreadable_files(tmp_path):
    for read in (read_task, read_header):
        with pytest.raises(UserError, match="no such file"):
            read(tmp_path / "a.task.yaml")
        (tmp_path / "b.task.yaml").write_bytes(b"passbench: \xff\xfe")
        with pytest.raises(UserError, match="not UTF-8"):
            read(tmp_path / "b.task.yaml")
        (tmp_path / "c.task.yaml").write_text("")
        with pytest.raises(UserError, match="no second document"):
            read(tmp_path / "c.task.yaml")
    with pytest.raises(UserError, match="cannot be written"):
        write_task(read_task(GELU), tmp_path / "c.task.yaml" / "d.task.yaml")


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
NAME = st.from_regex(r"[A-Za-z][A-Za-z0-9_.+-]{0,8}", fullmatch=True)
NUMBER = st.none() | st.floats(allow_nan=False, allow_infinity=False)
SOURCES = [
    "def forward({}):\n    tmp_0 = torch.relu(in_0)\n    return (tmp_0,)\n",
    "def forward({}):\n\n    return (in_0,)",
    '# a comment: {{}} | > \\ "\n\ndef forward({}):\n    return (in_0,)  # é\n\n',
    "def forward({}):\r\n    return (in_0, in_0.to('cuda', \"x\"))\r\n",
    "def forward({}):\n    '''\tdoc\n\n    '''\n    return (in_0,)   \n",
]


@st.composite
def specs(draw, name):
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=3)))
    count = 1
    for size in shape:
        count *= size
    scalar = draw(st.sampled_from([st.integers(-9, 9), st.booleans(), st.floats(allow_nan=False)]))
    low, high = draw(NUMBER), draw(NUMBER)
    if low is not None and high is not None and low > high:
        low, high = high, low
    return TensorSpec(
        name=name,
        shape=shape,
        dtype=draw(st.sampled_from(sorted(ELEMENT_BYTES))),
        mean=draw(NUMBER),
        std=draw(st.none() | st.floats(0, allow_infinity=False)),
        min=low,
        max=high,
        data=tuple(draw(st.lists(scalar, min_size=count, max_size=count))) if draw(st.booleans()) else None,
        original_name=draw(st.none() | TEXT),
    )


@st.composite
def tasks(draw):
    names = [f"in_{i}" for i in range(draw(st.integers(1, 3)))]
    graphs = {
        key: draw(st.sampled_from(SOURCES)).format(", ".join(names))
        for key in draw(st.lists(NAME, min_size=1, max_size=3, unique=True))
    }
    ids = draw(st.lists(NAME, min_size=len(graphs), max_size=len(graphs) + 2, unique=True))
    keys = [*graphs, *(draw(st.sampled_from([*graphs])) for _ in ids[len(graphs) :])]
    meta = st.dictionaries(TEXT, st.none() | st.integers() | TEXT | st.lists(TEXT), max_size=2)
    subgraphs = tuple(
        Subgraph(
            id=id_,
            graph=key,
            dtype=draw(st.sampled_from(["float32", "bfloat16"])),
            inputs=tuple(draw(specs(name)) for name in names),
            source=draw(st.just("") | TEXT),
            meta=draw(meta),
        )
        for id_, key in zip(ids, keys, strict=True)
    )
    words = st.lists(TEXT, max_size=3).map(tuple)
    ops = tuple(draw(st.lists(TEXT, min_size=1, max_size=4)))
    header = TaskHeader(draw(NAME), ops, draw(words), draw(words), len(subgraphs), draw(st.just("") | TEXT))
    return Task(header, Path("unset"), graphs, subgraphs)


@settings(max_examples=50)
@given(tasks())
def test_reading_gives_back_what_was_dumped(tmp_path_factory, task):
    path = tmp_path_factory.mktemp("round") / f"{task.id}.task.yaml"
    write_task(task, path)
    again = read_task(path)
    assert (again.header, again.graphs, again.subgraphs) == (task.header, task.graphs, task.subgraphs)
    assert read_header(path) == task.header
    assert dump_task(again) == dump_task(task)
