"""Node ids: parsing an id gives the parts that it was made from."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_passbench.plugin.nodeid import NodeId, parse, split

paths = st.text(st.characters(exclude_characters=":"), max_size=20)
tasks = st.text("abcxyz0123456789-_.", min_size=1, max_size=20)


@given(path=paths, task=tasks, candidate=st.text(max_size=20))
def test_a_node_id_gives_back_its_parts_whatever_the_folder_of_the_candidate_is_called(path, task, candidate):
    made = NodeId(path, task, candidate)
    assert parse(str(made)) == made
    assert split(str(made)) == (path, made.item)


def test_what_is_not_a_task_item_has_no_candidate():
    assert parse("tests/test_mine.py::test_mine") == ("tests/test_mine.py", "test_mine", "")
    assert split("tasks/text") == ("tasks/text", "")
