"""`passbench serve` under load, with a client and the judge killed: is an answer lost, or counted twice?

    python benchmarks/serve.py --minutes 10 --clients 8            # two at least
    python benchmarks/serve.py --minutes 2 --clients 32 --calm     # how many answers a minute

A client is a process. Its sessions are on tasks drawn from ``lite``: it has a pass generated, has it judged twice
with another comment each time, and compares the session's attempts with the answers that it got. Somebody without
the token asks for all that is served meanwhile. The first client is killed after a third of the time, in mid-step,
and the judge's process at half time. Exits with 1 if an answer was lost or counted twice, or if anything else went
wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from typing import Any

from pytest_passbench.judge.arms.processes import descendants

ROOT = Path(__file__).resolve().parent.parent
TOKEN = "a-token-of-this-measurement"
SERVED = (("GET", "/health"), ("GET", "/state?session=x"), ("POST", "/reset"), ("POST", "/step"), ("POST", "/close"))
ATTEMPTS = 2  # of a session
POLL_SECONDS = 0.05


def main() -> int:
    """Run the measurement, or one of its clients. Return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--calm", action="store_true", help="nobody is killed: how many answers a minute")
    parser.add_argument("--client", nargs=3, metavar=("PORT", "NUMBER", "LOG"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.client:
        port, number, log = args.client
        episodes(int(port), int(number), Path(log), time.monotonic() + 60 * args.minutes)
        return 0
    if args.clients < 2 and not args.calm:
        parser.error("--clients: the first is killed, so there have to be two at least, or --calm")
    with tempfile.TemporaryDirectory(prefix="passbench-serve-") as folder:
        return measure(args, Path(folder))


def measure(args: argparse.Namespace, folder: Path) -> int:
    """Run the server and its clients, print the counts, and return 1 if anything went wrong."""
    (folder / "token").write_text(TOKEN)
    command = [sys.executable, "-c", "import sys; from pytest_passbench.commands.main import main; sys.exit(main())"]
    server = subprocess.Popen([*command, "serve", "--port=0", f"--token-file={folder / 'token'}"], cwd=folder,
                              env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)  # fmt: skip
    port = int(server.stdout.readline().rpartition(":")[2])  # type: ignore[union-attr]
    logs = [folder / f"{number}.jsonl" for number in range(args.clients)]
    begin, seconds = time.monotonic(), 60 * args.minutes
    clients = [
        subprocess.Popen([sys.executable, __file__, f"--minutes={args.minutes}", "--client", str(port), str(n), log])
        for n, log in enumerate(logs)
    ]
    refusals: Counter[str] = Counter()
    intruder = threading.Thread(target=intrude, args=(port, begin + seconds, refusals))
    intruder.start()
    struck = [] if args.calm else strike(server.pid, clients[0], logs, begin, seconds)
    codes = [client.wait() for client in clients]
    intruder.join()
    health = ask(HTTPConnection("127.0.0.1", port), "GET", "/health")[1]
    left_whole = args.calm or is_whole(port, lines(logs[0]))
    server.send_signal(signal.SIGINT)
    _, errors = server.communicate(timeout=120)
    faulty = report(logs, codes, begin) + (not left_whole)
    print(f"what a killed client left is whole: {left_whole}; judges killed {len(struck)}; without the token "
          f"{dict(refusals)}; callers left {health['callers']}; server's exit code {server.returncode}, "
          f"its stderr {errors!r}")  # fmt: skip
    expected = [-signal.SIGKILL] * (not args.calm) + [0] * (args.clients - (not args.calm))
    is_right = codes == expected and len(struck) == (not args.calm) and refusals.keys() == {"401"}
    return 0 if is_right and not faulty and not health["callers"] and server.returncode == 0 and not errors else 1


def is_whole(port: int, rows: list[dict[str, Any]]) -> bool:
    """Return True if a killed client's session has the attempts that the client had answers to.

    The attempt that the client was waiting for when it was killed may have been judged too.
    """
    begun = max(index for index, row in enumerate(rows) if "begun" in row)
    answered = sum(row.get("judged", False) for row in rows[begun:])
    state = ask(HTTPConnection("127.0.0.1", port), "GET", f"/state?session={rows[begun]['begun']}")[1]
    return bool(answered <= len(state["attempts"]) <= answered + 1)


def strike(server: int, client: subprocess.Popen[bytes], logs: list[Path], begin: float, seconds: float) -> list[int]:
    """Kill a client in mid-step, and later the judge's process. Return the ids of the judge's killed processes."""
    sleep_until(begin + seconds / 3)
    wait_until_judged(logs[:1], begin + seconds)
    client.kill()
    sleep_until(begin + seconds / 2)
    wait_until_judged(logs[1:], begin + seconds)
    struck = [pid for pid in descendants(server) if b"api.backend" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    for pid in struck:
        os.kill(pid, signal.SIGKILL)
    return struck


def wait_until_judged(logs: list[Path], end: float) -> None:
    """Wait until one of these clients awaits a judging, or until ``end``."""
    while time.monotonic() < end and not any(lines(log)[-1:] == [{"asked": "judge"}] for log in logs):
        time.sleep(POLL_SECONDS)


def sleep_until(moment: float) -> None:
    """Sleep until a moment of the monotonic clock."""
    time.sleep(max(0.0, moment - time.monotonic()))


def intrude(port: int, end: float, refusals: Counter[str]) -> None:
    """Ask for everything without the token, once a second; count the answers by code."""
    while time.monotonic() < end:
        for method, path in SERVED:
            connection = HTTPConnection("127.0.0.1", port, timeout=60)
            code, _ = ask(connection, method, path, {"task": "x", "session": "x"}, token="another-token")
            connection.close()
            refusals[str(code)] += 1
        time.sleep(1.0)


def ask(connection: HTTPConnection, method: str, path: str, request: dict[str, Any] | None = None,
        token: str = TOKEN) -> tuple[int, dict[str, Any]]:  # fmt: skip
    """Return the status and the answer of a request."""
    body = None if method == "GET" else json.dumps(request or {}).encode()
    connection.request(method, path, body, {"Authorization": f"Bearer {token}"})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def episodes(port: int, number: int, log: Path, end: float) -> None:
    """Run sessions until the end. The log has a line before each judging, and for each answer and session."""
    connection, draw = HTTPConnection("127.0.0.1", port, timeout=600), random.Random(number)
    tasks = ask(connection, "GET", "/health")[1]["tasks"]
    with log.open("a") as file:

        def write(**line: Any) -> None:
            file.write(json.dumps(line) + "\n")
            file.flush()

        while time.monotonic() < end:
            session = ask(connection, "POST", "/reset", {"task": draw.choice(tasks)})[1]["session"]
            write(begun=session)
            answers = judged_twice(connection, session, number, write)
            state = ask(connection, "GET", f"/state?session={session}")[1]
            rewards = [attempt["reward"] for attempt in state["attempts"]]
            best = [max(rewards[: place + 1]) for place in range(len(rewards))]
            write(
                session=session,
                unjudged=state["unjudged"],
                same=[answer for answer in answers if answer is not None] == best
                and answers.count(None) == state["unjudged"],
                waited=[attempt["waiting_seconds"] for attempt in state["attempts"]],
                judging=[attempt["judging_seconds"] for attempt in state["attempts"]],
            )
            ask(connection, "POST", "/close", {"session": session})


def judged_twice(connection: HTTPConnection, session: str, number: int, write: Any) -> list[float | None]:
    """Have a generated pass judged. Return the best reward so far after each answer, None if it was not judged."""

    def step(tool: str, **arguments: str) -> tuple[int, dict[str, Any]]:
        return ask(connection, "POST", "/step", {"session": session, "tool": tool, "arguments": arguments})

    rewards: list[float | None] = []
    step("new_pass")
    names = [line.split()[0] for line in step("list_files")[1]["observation"].splitlines()]
    name = next((name for name in names if name.endswith(".py")), None)
    if name is None:  # no kernel is generated for the task: an empty file is judged
        name, text = "empty.py", ""
    else:
        text = step("read_file", path=name)[1]["observation"]
    for attempt in range(ATTEMPTS):
        step("write_file", path=name, text=f"{text}\n# {number} {session} {attempt}\n")
        write(asked="judge")
        code, answer = step("judge")
        was_judged = code == 200 and "not judged" not in answer["observation"]
        rewards.append(answer["reward"] if was_judged else None)
        write(code=code, judged=was_judged)
    return rewards


def lines(log: Path) -> list[dict[str, Any]]:
    """Return the whole lines of a log."""
    return [json.loads(line) for line in log.read_text().split("\n")[:-1]] if log.exists() else []


def report(logs: list[Path], codes: list[int], begin: float) -> int:
    """Print what the clients' logs say. Return the number of sessions whose attempts are not the answers."""
    rows = [line for log in logs for line in lines(log)]
    sessions = [row for row in rows if "session" in row]
    answers = [row for row in rows if "code" in row]
    waited = [seconds for row in sessions for seconds in row["waited"]]
    judging = [seconds for row in sessions for seconds in row["judging"]]
    minutes, refused = (time.monotonic() - begin) / 60, sum(row["unjudged"] for row in sessions)
    codes_of_answers = dict(Counter(row["code"] for row in answers))
    print(f"{len(sessions)} sessions, {len(answers)} answers to 'judge' in {minutes:.1f} minutes; by code "
          f"{codes_of_answers}; not judged {refused}")  # fmt: skip
    faulty = sum(not row["same"] for row in sessions)
    print(f"sessions whose attempts are not the answers: {faulty}")
    if judging:
        print(f"seconds of a judging: median {median(judging):.1f}; of waiting: median {median(waited):.1f}, most "
              f"{max(waited):.1f}; clients' exit codes {codes}")  # fmt: skip
    return faulty


if __name__ == "__main__":
    sys.exit(main())
