"""Earlier calls tell nothing: an attacker who saw all earlier calls knows no more about the next one's inputs than
an attacker who saw another run. The scores detect all cheaper ways to make inputs, which are the controls."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from pytest_passbench.core.task import TensorSpec
from pytest_passbench.judge.inputs import Inputs
from pytest_passbench.judge.inputs.generator import Generator, Portable, default

BLOCKS, CALLS, ROWS, COLUMNS = 5, 8, 8, 32
RUNS = 32
POOL = 4096  # elements beyond one input
Array = np.ndarray  # of calls: one of rows and columns each


# Ways to make the inputs of a run: blocks, calls, rows, columns


def fresh(generator: Generator, dtype: str) -> Callable[[int], Array]:
    told = {"min": 0.0, "max": 50_000.0} if dtype.startswith("int") else {"mean": 1.0, "std": 2.0}

    def made(run: int) -> Array:
        inputs = Inputs([TensorSpec("x", (ROWS, COLUMNS), dtype, **told)], run.to_bytes(32, "little"), generator)
        blocks = [inputs.draw(CALLS) for _ in range(BLOCKS)]
        calls = [inputs.values(0, batch, call).to(torch.float64) for batch in blocks for call in range(CALLS)]
        return torch.stack(calls).numpy().reshape(BLOCKS, CALLS, ROWS, COLUMNS)

    return made


def windows(rng: np.random.Generator, pool: Array, calls: int) -> Array:
    starts = rng.integers(0, pool.size - ROWS * COLUMNS + 1, calls)
    return np.stack([pool[start : start + ROWS * COLUMNS] for start in starts])


def of_a_pool(run: int) -> Array:
    rng = np.random.default_rng(run)
    return windows(rng, rng.standard_normal(POOL), BLOCKS * CALLS)


def of_a_scaled_pool(run: int) -> Array:
    rng = np.random.default_rng(run)
    scale, shift = rng.uniform(0.5, 2, (2, BLOCKS * CALLS, 1))
    return windows(rng, rng.standard_normal(POOL), BLOCKS * CALLS) * scale + shift


def of_a_pool_and_noise(run: int) -> Array:
    found = of_a_pool(run)
    return found + 0.01 * np.random.default_rng(run + 1000).standard_normal(found.shape)


def of_permuted_rows(run: int) -> Array:
    rng = np.random.default_rng(run)
    rows = rng.standard_normal((ROWS, COLUMNS))
    return np.stack([rng.permutation(rows) for _ in range(BLOCKS * CALLS)])


def of_permuted_columns(run: int) -> Array:
    rng = np.random.default_rng(run)
    rows = rng.standard_normal((ROWS, COLUMNS))
    return np.stack([rng.permutation(rows, axis=1) for _ in range(BLOCKS * CALLS)])


def of_a_pool_per_block(run: int) -> Array:
    rng = np.random.default_rng(run)
    return np.concatenate([windows(rng, rng.standard_normal(POOL // 8), CALLS) for _ in range(BLOCKS)])


def of_a_few_directions(run: int) -> Array:
    rng = np.random.default_rng(run)
    basis = rng.standard_normal((20, ROWS * COLUMNS))
    return rng.standard_normal((BLOCKS * CALLS, 20)) @ basis


HYBRIDS = (
    *(of_a_pool, of_a_scaled_pool, of_a_pool_and_noise, of_permuted_rows, of_permuted_columns),
    *(of_a_pool_per_block, of_a_few_directions),
)


# Scores: how much of the new call is in the history. Greater is more.


def standard(calls: Array) -> Array:
    """Return each call flat, with mean 0 and standard deviation 1."""
    flat = calls.reshape(len(calls), -1)
    return (flat - flat.mean(1, keepdims=True)) / flat.std(1, keepdims=True)


def recurring_elements(history: Array, new: Array) -> float:
    return float(np.isin(new, history).mean())


def recurring_windows(history: Array, new: Array) -> float:
    """Return the share of four consecutive elements that also are in the history."""
    seen = {part.tobytes() for part in np.lib.stride_tricks.sliding_window_view(history.reshape(-1), 4)}
    parts = np.lib.stride_tricks.sliding_window_view(new.reshape(-1), 4)
    return sum(part.tobytes() in seen for part in parts) / len(parts)


def known_multisets(history: Array, new: Array) -> float:
    """Return minus the distance between the nearest rows of the call and the history, with elements sorted."""
    old = np.sort(standard(history).reshape(-1, COLUMNS), axis=1)
    rows = np.sort(standard(new[None]).reshape(-1, COLUMNS), axis=1)
    return -float(np.abs(old[:, None] - rows[None]).max(2).min())


def correlation_at_a_lag(history: Array, new: Array) -> float:
    past, now = standard(history).reshape(-1), standard(new[None]).reshape(-1)
    size = past.size + now.size
    found = np.fft.irfft(np.fft.rfft(past, size) * np.conj(np.fft.rfft(now, size)), size)
    return float(np.abs(found).max())


def within_their_span(history: Array, new: Array) -> float:
    """Return minus the distance of the call from the nearest linear combination of the calls before."""
    past, now = (torch.from_numpy(standard(calls)).T for calls in (history, new[None]))
    combined = past @ torch.linalg.lstsq(past, now, rcond=1e-9, driver="gelsd").solution
    return -float((now - combined).norm())


SCORES = (recurring_elements, recurring_windows, known_multisets, correlation_at_a_lag, within_their_span)


def told(made: Callable[[int], Array], score: Callable[[Array, Array], float]) -> float:
    """Return the probability that a run's own history scores higher for its last call than another run's: 0.5 if
    history tells nothing."""
    runs = [made(run).reshape(-1, ROWS, COLUMNS) for run in range(RUNS)]
    own = np.array([score(run[:-1], run[-1]) for run in runs])
    other = np.array([score(runs[i - 1][:-1], run[-1]) for i, run in enumerate(runs)])
    more, same = own[:, None] > other[None], own[:, None] == other[None]
    return float((more + 0.5 * same).mean())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "int64"])
@pytest.mark.parametrize("score", SCORES)
def test_history_tells_nothing_of_the_next_call(score, dtype):
    assert abs(told(fresh(default.__wrapped__(), dtype), score) - 0.5) < 0.29  # 4 standard errors of 0.073


@pytest.mark.parametrize("score", SCORES)
def test_nor_without_a_compiler(score):
    assert abs(told(fresh(Portable("tests"), "float32"), score) - 0.5) < 0.29


@pytest.mark.parametrize("hybrid", HYBRIDS)
def test_every_cheaper_way_is_found_out(hybrid):
    assert max(told(hybrid, score) for score in SCORES) > 0.95
