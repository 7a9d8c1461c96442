"""The suite as a taskset of verifiers: its rows, and the rewards of answers."""

from __future__ import annotations

import asyncio

import pytest

from pytest_passbench.agents.answer_files import answer_text
from support.plugin_runs import PASS, task_text

pytest.importorskip("verifiers", reason="verifiers is not installed: it has its own environment (development.md)")

import verifiers.v1 as vf

from pytest_passbench.agents import verifiers_taskset


@pytest.fixture
def task(backend, monkeypatch, tmp_path):
    """Return the one task of a taskset that verifiers finds by its name. It is judged by words in the text."""
    from pytest_passbench.agents import environment

    monkeypatch.setattr(verifiers_taskset, "process_judge", environment.process_judge)
    (tmp_path / "passbench_v1.py").write_text(
        "from pytest_passbench.agents.verifiers_taskset import PassTaskset\n__all__ = ['PassTaskset']\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "a.task.yaml").write_text(task_text("a", {}, {}))
    config = vf.taskset_config_type("passbench-v1")(id="passbench-v1", tasks=[str(tmp_path / "a.task.yaml")])
    (task,) = vf.load_taskset(config)
    return task


def scored(task, reply):
    trace = vf.Trace(
        task=vf.TraceTask(type="PassTask", data=task.data, key=task.key, hash=task.hash),
        agent=vf.AgentInfo(config=vf.AgentConfig(), name="test", trainable=False),
        root_reply=reply,
    )
    asyncio.run(task.score(trace))
    return trace


def test_the_prompt_has_the_graph_and_the_form_of_an_answer(task):
    assert task.data.id == "a"
    assert "torch.relu(in_0)" in task.data.prompt_text
    assert "Before each file stands a line with its path alone" in task.data.prompt_text


@pytest.mark.parametrize(("text", "least", "most"), [
    (answer_text({"fuse.py": PASS}), 1.0, 2.0),
    (answer_text({"fuse.py": PASS + "# WRONG"}), 0.15, 0.2),
    (answer_text({"fuse.py": PASS + "# CHEATS"}), 0.0, 0.0),
    ("I cannot do that.", 0.0, 0.0),
])  # fmt: skip
def test_the_reward_is_the_judges(task, text, least, most):
    assert least <= scored(task, text).rewards["staged"].value <= most


def test_an_answer_that_could_not_be_judged_has_no_reward(task):
    with pytest.raises(vf.TaskError, match="lost twice"):
        scored(task, answer_text({"fuse.py": PASS + "# FAULT"}))


def test_metrics_stand_beside_the_reward(task):
    metrics = scored(task, answer_text({"fuse.py": PASS})).metrics
    assert (metrics["correct"], metrics["integrity"], metrics["AS"] > 1.0) == (1.0, 0.0, True)
