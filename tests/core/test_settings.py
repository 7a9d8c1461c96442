"""The settings of a run: each states in which uses of two runs it has to be the same in both."""

from __future__ import annotations

from dataclasses import fields
from typing import get_args

from pytest_passbench.core.settings import Role, Settings, same_in

#: What decides how a subgraph is judged has to be the same in all parts of a run. Else half of it could be
#: judged without an audit, for example, and the results file would not say so.
JUDGING = {
    "tolerance", "criterion", "device", "pipeline", "policy", "audit", "sandbox", "baselines", "held_out", "threads",
    "timeout", "trusted",
}  # fmt: skip
ROLES = {
    "resume": JUDGING | {"tasks", "task_ids", "suite", "only_matching", "shard"},
    "merge": JUDGING | {
        "task_ids", "suite", "only_matching", "budget", "fail_under", "max_regression", "compare_strict", "score",
    },
    "board": {"device", "pipeline", "policy", "audit", "threads", "timeout", "only_matching", "trusted", "score"},
    "compare": {"device", "pipeline", "threads"},
    "rerun": JUDGING - {"baselines", "trusted"},
    "command": JUDGING - {"trusted"} | {"tasks", "against", "compare", "max_regression", "compare_strict", "score"},
}  # fmt: skip


def test_every_setting_says_in_which_uses_of_two_runs_it_has_to_be_the_same():
    assert [setting.name for setting in fields(Settings) if "roles" not in setting.metadata] == []
    assert {role: set(same_in(role)) for role in get_args(Role)} == ROLES
