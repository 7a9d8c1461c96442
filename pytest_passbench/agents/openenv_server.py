"""The suite as an environment of OpenEnv: episodes over WebSocket, and its task API (extra ``openenv``).

    python -m pytest_passbench.agents.openenv_server --tasks lite --port 8000

OpenEnv has no token: listen where only trusted clients are, or take ``passbench serve``. Interface:
https://github.com/huggingface/OpenEnv, openenv.core.env_server, version 0.10.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import uvicorn
from fastapi import FastAPI
from openenv.core.env_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, ConcurrencyConfig, Observation, State
from pydantic import Field

from pytest_passbench.agents.environment import MAX_ATTEMPTS, TOOLS, PassEnvironment, call_tool
from pytest_passbench.agents.service import IDLE_SECONDS, MAX_SESSIONS, attempt_summary
from pytest_passbench.agents.shared_judge import SharedJudge, TurnLost
from pytest_passbench.api.arguments import TaskShelf
from pytest_passbench.api.evaluator import Evaluator
from pytest_passbench.core.checks import whole
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import abbreviated

SPLIT = "tasks"


class ToolCall(Action):
    """A call of one of the environment's tools."""

    tool: str = Field(json_schema_extra={"enum": list(TOOLS)})
    arguments: dict[str, str] = Field(default_factory=dict)


class ToolResult(Observation):
    """A tool's text, or the prompt. ``reward`` is that of the best attempt, once one was judged."""

    text: str


class EpisodeState(State):
    """The state of an episode: its task, and the judged attempts without their files."""

    task: str = ""
    attempts: list[dict[str, Any]] = Field(default_factory=list)


class PassEpisodes(Environment[ToolCall, ToolResult, EpisodeState]):
    """Episodes on ``tasks``, which are files by id. All share one judge."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, judge: SharedJudge, tasks: Mapping[str, str]) -> None:
        super().__init__()
        self._tasks, self._environment, self._state = tasks, PassEnvironment(judge), EpisodeState()

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        task: str | None = None,
        index: int | None = None,
        **_row: Any,
    ) -> ToolResult:
        """Begin an episode and return its prompt. Without ``task`` and ``index`` the seed chooses among the tasks.

        Raises UserError for a task that is not served.
        """
        ids = list(self._tasks)
        place = (seed or 0) % len(ids) if index is None else index
        name = task or (ids[place] if 0 <= place < len(ids) else "")
        if name not in self._tasks:
            raise UserError(f"no task {abbreviated(name or place, 80)} is served")
        self._state = EpisodeState(episode_id=episode_id, task=name)
        return ToolResult(text=self._environment.reset(self._tasks[name]))

    def step(self, action: ToolCall, **_options: Any) -> ToolResult:
        """Call a tool. An episode is done when it has had its last attempt."""
        try:
            text = call_tool(self._environment, action.tool, action.arguments)
        except (UserError, TurnLost) as error:
            text = f"error: {error}"
        attempts = self._environment.attempts
        self._state.step_count += 1
        self._state.attempts = [attempt_summary(attempt) for attempt in attempts]
        reward = float(self._environment.get_reward() or 0.0) if attempts else None
        return ToolResult(text=text, reward=reward, done=len(attempts) >= MAX_ATTEMPTS)

    @property
    def state(self) -> EpisodeState:
        """The state of the episode."""
        return self._state

    def list_splits(self) -> list[str]:
        """Return the names of the splits: all tasks are in one."""
        return [SPLIT]

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        """Return the tasks of a split, each with its id and its index."""
        return [{"id": name, "index": index} for index, name in enumerate(self._tasks)] if split == SPLIT else []

    def num_tasks(self, split: str) -> int:
        """Return the number of tasks of a split."""
        return len(self.list_tasks(split))

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        """Return a task of a split. Raises IndexError."""
        return self.list_tasks(split)[index]

    def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[dict[str, Any]]:
        """Return the tasks of a split from ``start`` up to ``stop``."""
        return self.list_tasks(split)[start:stop]


def main(argv: Sequence[str] | None = None) -> None:
    """Serve episodes until Ctrl+C."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--tasks", nargs="+", default=["lite"], help="suites, ids, files, folders (default: lite)")
    parser.add_argument("--port", type=whole(0, 65535), default=8000)
    parser.add_argument("--host", default="127.0.0.1")
    args = parser.parse_args(argv)
    try:
        tasks = {task.id: str(task.path) for task in TaskShelf().named(args.tasks)}
    except UserError as error:
        sys.exit(f"openenv_server: error: {error}")
    with SharedJudge(Evaluator(pipeline="direct")) as judge:
        uvicorn.run(make_app(judge, tasks), host=args.host, port=args.port, access_log=False)


def make_app(judge: SharedJudge, tasks: Mapping[str, str]) -> FastAPI:
    """Return the application that serves episodes on ``tasks``, which are files by id."""
    sessions = ConcurrencyConfig(max_concurrent_envs=MAX_SESSIONS, session_timeout=IDLE_SECONDS)
    episodes = partial(PassEpisodes, judge, tasks)
    app: FastAPI = create_fastapi_app(
        episodes, ToolCall, ToolResult, None, sessions, env_name="passbench", state_cls=EpisodeState
    )
    return app


if __name__ == "__main__":
    main()
