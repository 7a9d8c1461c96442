"""An answer in one turn: its files as text, and back."""

from __future__ import annotations

import pytest

from pytest_passbench.agents.answer_files import answer_files, answer_text
from pytest_passbench.core.errors import UserError


@pytest.mark.parametrize("text", ["x = 1\n", "x = 1\n\n\ny = 2\n", 'x = """\n```python\na\n```\n"""\n', "```` = 1\n"])
def test_files_come_back_as_they_were(text):
    files = {"a.py": text, "sub/b.py": "z = 3\n"}
    assert answer_files(f"Here you are.\n\n{answer_text(files)}\n\nDone.") == files


@pytest.mark.parametrize("path", ["**a.py**", "`a.py`:", "# a.py", "a.py:"])
def test_a_path_may_be_set_off(path):
    assert answer_files(f"{path}\n\n```python\nx = 1\n```\n") == {"a.py": "x = 1\n"}


@pytest.mark.parametrize("info", ["", "python", "c++", "python title=b.h", "objective-c"])
def test_a_fence_may_name_any_language(info):
    assert answer_files(f"a.py\n```python\nx\n```\nb.h\n```{info}\ny\n```\n") == {"a.py": "x\n", "b.h": "y\n"}


def test_lines_may_end_as_on_windows():
    assert answer_files("a.py\r\n\r\n```python\r\nx = 1\r\n```\r\n") == {"a.py": "x = 1\n"}


NOTHING = ["", "I give up", "```python\nx = 1\n```", "a.py\n```python\nx = 1", "../a.py\n```\n```"]


@pytest.mark.parametrize("text", NOTHING)
def test_what_is_no_answer_is_a_mistake(text):
    with pytest.raises(UserError):
        answer_files(text)
