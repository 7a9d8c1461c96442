"""The help of every subcommand: plain text for users."""

from __future__ import annotations

import pytest

from pytest_passbench.commands.main import COMMANDS, main

HELPS = [[name] for name in COMMANDS] + [["tasks", name] for name in ("list", "show", "validate", "check")]


@pytest.mark.parametrize("words", HELPS, ids=" ".join)
def test_a_help_has_no_markup_and_no_word_about_imports(words, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([*words, "--help"])
    assert stopped.value.code == 0
    said = capsys.readouterr().out
    assert said.startswith(f"usage: passbench {' '.join(words)} ")
    assert "`" not in said
    assert "Imports no" not in said
