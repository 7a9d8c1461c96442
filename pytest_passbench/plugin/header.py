"""The header that a run prints before it starts."""

from __future__ import annotations

from pytest_passbench.core.escape import line
from pytest_passbench.core.plurals import counted
from pytest_passbench.core.seed import commitment
from pytest_passbench.core.settings import Settings
from pytest_passbench.plugin.state import State
from pytest_passbench.run.forecast import forecast_line
from pytest_passbench.run.stored import warnings

MAX_STRAYS = 3  # folders for no known task that are named


def lines(state: State) -> list[str]:
    """Return the header."""
    settings = state.settings
    rows = [
        f"passbench: device: {settings.device}{_cpu(state)}, threads: {settings.threads}, "
        f"pipeline: {settings.pipeline}, policy: {settings.policy}, t: {settings.tolerance}{_criterion(settings)}"
        f"{_sandbox(state)}",
        *(line(f"candidate: {c.name}, content {c.content_hash[:16]}") for c in state.ledger.candidates),
        *_against(state),
        *_compared(state),
        state.selection.describe(settings) + _shard(settings.shard),
    ]
    rows += [line(f"not judged: {error}", 300) for error in state.strays[:MAX_STRAYS]]
    if len(state.strays) > MAX_STRAYS:
        rows.append(f"not judged: {counted(len(state.strays) - MAX_STRAYS, 'more folder')} for no known task")
    if settings.trusted:
        return [*rows, "trusted: the candidate runs in this process; nothing is scored"]
    if state.config.option.collectonly:
        unfiltered = "only matching: not applied while collecting only; 'passbench explain DIR --all' lists the tasks"
        return [*rows, unfiltered] if settings.only_matching else rows
    if state.earlier is not None:
        rows.append(line(str(state.earlier), 1000))
    return [*rows, f"seed commitment: sha256 {commitment(state.ledger.seed)}"]


def _against(state: State) -> list[str]:
    reference = state.ledger.reference
    if reference is None:
        return []
    return [line(f"against: {reference.name}, content {reference.content_hash[:16]}")]


def _compared(state: State) -> list[str]:
    stored = state.ledger.stored
    if stored is None:
        return []
    text = f"compared with {stored.path}, at most {100 * stored.limit:g} % slower" + (", strict" * stored.strict)
    forecast = forecast_line(stored.run, getattr(state.config.option, "numprocesses", None) or 1)
    return [line(text, 1000), *filter(None, [forecast]), *_warnings(state)]


def _warnings(state: State) -> list[str]:
    stored = state.ledger.stored
    return [line(text, 1000) for text in warnings(stored.run, state.ledger.environment)] if stored else []


def _cpu(state: State) -> str:
    model = state.ledger.environment.get("cpu")
    return f" ({line(str(model), 60)})" if model and state.settings.device == "cpu" else ""


def _criterion(settings: Settings) -> str:
    return "" if settings.criterion == "ladder" else f", criterion: {settings.criterion}"


def _sandbox(state: State) -> str:
    sandbox = state.ledger.environment.get("sandbox")
    return f", sandbox: {sandbox}" if sandbox else ""


def _shard(shard: tuple[int, int] | None) -> str:
    return f", shard {shard[0]} of {shard[1]}" if shard else ""
