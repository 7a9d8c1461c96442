"""Where the time of a subgraph goes: phases are disjoint and complete."""

from __future__ import annotations

from types import SimpleNamespace

from pytest_passbench.judge import bench


def test_phases_add_up_and_one_within_another_pauses_it(monkeypatch):
    now = SimpleNamespace(seconds=5.0)
    monkeypatch.setattr(bench, "time", SimpleNamespace(perf_counter=lambda: now.seconds))
    spent: dict[str, float] = {}
    phases = bench.Stopwatch(spent)
    with phases("outer"):
        now.seconds += 1
        with phases("inner"):
            now.seconds += 2
        now.seconds += 4
    now.seconds += 8  # in no phase
    with phases("inner"):
        now.seconds += 16
    assert spent == {"outer": 5.0, "inner": 18.0}
