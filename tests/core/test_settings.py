"""The settings of a run: which of them two runs must share is said for each."""

from __future__ import annotations

from dataclasses import fields
from typing import get_args

from pytest_passbench.core.settings import Role, Settings, same_in


def test_every_setting_says_in_which_uses_of_two_runs_it_has_to_be_the_same():
    assert [setting.name for setting in fields(Settings) if "roles" not in setting.metadata] == []
    for role in get_args(Role):
        assert {"device", "pipeline", "threads"} <= set(same_in(role))
