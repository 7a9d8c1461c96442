"""Environments for clients in other processes: sessions, and requests as plain data, without HTTP."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from pytest_passbench.agents.environment import TOOLS, JudgedAttempt, PassEnvironment, call_tool
from pytest_passbench.agents.shared_judge import SharedJudge, TurnLost
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import abbreviated
from pytest_passbench.core.plurals import counted

Request = Mapping[str, Any]
Answer = dict[str, Any]
MAX_SESSIONS, IDLE_SECONDS = 64, 1800.0
"""The most sessions at a time, and the idle seconds after which a session may be ended."""


class Refused(Exception):
    """A request that is not served: an HTTP status, and one message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class ClientSession:
    """A client's environment on a task. It makes one step at a time, while it is ``busy``.

    ``used`` is when it was last used (monotonic seconds). ``is_awaited`` asks whether its client awaits the step.
    """

    def __init__(self, judge: SharedJudge, task: str) -> None:
        self.task, self.busy, self.used = task, threading.Lock(), time.monotonic()
        self.is_awaited: Callable[[], bool] = lambda: True
        self.environment = PassEnvironment(judge, lambda: self.is_awaited())


class Service:
    """The sessions over one judge. Its methods may be called from any thread; they raise Refused.

    ``tasks`` maps the ids that clients may name to their files. Once all sessions are taken, a new one ends those
    that were idle for too long, or is refused.
    """

    def __init__(
        self,
        judge: SharedJudge,
        tasks: Mapping[str, str],
        max_sessions: int = MAX_SESSIONS,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._judge, self._tasks = judge, tasks
        self._max_sessions, self._idle_seconds = max_sessions, idle_seconds
        self._sessions: dict[str, ClientSession] = {}
        self._lock = threading.Lock()

    def health(self) -> Answer:
        """Return the status, the numbers of sessions and of callers, and the tasks and tools that are served."""
        return {
            "status": "ending" if self._judge.closed else "ok",
            "sessions": len(self._sessions),
            "callers": self._judge.callers,
            "tasks": list(self._tasks),
            "tools": list(TOOLS),
        }

    def reset(self, request: Request) -> Answer:
        """Begin a session on the ``task`` of the request."""
        task = _text(request, "task")
        if task not in self._tasks:
            raise Refused(404, f"no task {abbreviated(task, 80)} is served: GET /health names those that are")
        session = ClientSession(self._judge, task)
        try:
            observation = session.environment.reset(self._tasks[task])
        except UserError as error:
            raise Refused(503, str(error)) from None
        name = secrets.token_urlsafe(16)
        with self._lock:
            self._make_room()
            self._sessions[name] = session
        return {"session": name, "observation": observation}

    def _make_room(self) -> None:
        if len(self._sessions) < self._max_sessions:
            return
        now = time.monotonic()
        for name, session in list(self._sessions.items()):
            if now - session.used > self._idle_seconds and not session.busy.locked():
                del self._sessions[name]
        if len(self._sessions) >= self._max_sessions:
            raise Refused(503, f"there are {counted(len(self._sessions), 'session')}, the maximum: close one")

    def step(self, request: Request, is_awaited: Callable[[], bool]) -> Answer:
        """Call a tool of a session. The answer has the best reward so far once an attempt was judged."""
        session, tool = self._session(_text(request, "session")), _text(request, "tool")
        arguments = request.get("arguments", {})
        if not session.busy.acquire(blocking=False):
            raise Refused(409, "the session is at another step")
        try:
            session.is_awaited = is_awaited
            observation = call_tool(session.environment, tool, arguments)
        except TurnLost as error:
            raise Refused(503, str(error)) from None
        except UserError as error:
            raise Refused(400, str(error)) from None
        finally:
            session.used = time.monotonic()
            session.busy.release()
        environment = session.environment
        reward = {"reward": environment.get_reward()} if environment.attempts else {}
        return {"observation": observation, **reward}

    def state(self, name: str) -> Answer:
        """Return the state of a session: its task, its files' sizes, and its attempts without their files."""
        session = self._session(name)
        return {
            "task": session.task,
            "files": session.environment.list_files(),
            "attempts": [attempt_summary(item) for item in list(session.environment.attempts)],
            "unjudged": session.environment.unjudged,
            "reward": session.environment.get_reward(),
        }

    def close(self, request: Request) -> Answer:
        """End a session, and return its reward. A step that still runs goes on, but no longer counts."""
        name = _text(request, "session")
        session = self._session(name)
        with self._lock:
            self._sessions.pop(name, None)
        return {"reward": session.environment.get_reward()}

    def _session(self, name: str) -> ClientSession:
        session = self._sessions.get(name)
        if session is None:
            raise Refused(404, "there is no such session: it was closed, or ended after it was idle")
        session.used = time.monotonic()
        return session


def _text(request: Request, name: str) -> str:
    value = request.get(name)
    if not isinstance(value, str):
        raise Refused(400, f"the request has no text {name!r}")
    return value


def attempt_summary(attempt: JudgedAttempt) -> Answer:
    """Return a judged attempt without its files, JSON-ready."""
    return {
        "reward": float(attempt.reward),
        "stage": attempt.reward.stage,
        "scores": dict(attempt.scores),
        "judging_seconds": attempt.judging_seconds,
        "waiting_seconds": attempt.waiting_seconds,
    }
