"""The benchmarks' pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

_INK, _BAR = "#333333", "#4878a8"
_COLOURS = {"SAME": "#2b7a78", "UNRESOLVED": "#b0b0b0", "SLOWER": "#c0392b", "FASTER": "#e08e0b"}


def aa_picture(sessions: Sequence[dict[str, Any]], path: Path, title: str) -> None:
    """Draw every ratio over eager's time on the left, and the distribution of the error on the right."""
    good = [item for item in sessions if "ratio" in item]
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), width_ratios=(3, 2), layout="constrained")
    for verdict, colour in _COLOURS.items():
        chosen = [item for item in good if item["verdict"] == verdict]
        if chosen:
            left.scatter(
                [item["eager_us"] for item in chosen], [100 * (item["ratio"] - 1) for item in chosen],
                s=9, color=colour, label=f"{verdict} ({len(chosen)})", linewidths=0,
            )  # fmt: skip
    left.axhline(0, color="black", linewidth=0.7)
    left.set(xscale="log", xlabel="eager, µs a call", ylabel="measured ratio − 1, %")
    left.legend(fontsize=8)
    errors = sorted(100 * abs(item["ratio"] - 1) for item in good)
    right.plot(errors, [(i + 1) / len(errors) for i in range(len(errors))], color=_COLOURS["SAME"])
    right.axhline(0.95, color="black", linewidth=0.7, linestyle=":")
    right.set(xscale="log", xlabel="|ratio − 1|, %", ylabel="share of sessions", ylim=(0, 1.01))
    covered = sum(item["low"] <= 1 <= item["high"] for item in good) / len(good)
    figure.suptitle(f"{title}: {len(good)} sessions, the interval covers 1 in {100 * covered:.1f} %")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def planted_picture(sessions: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw the measured extra time over eager's time, for each amount of extra work."""
    amounts = sorted({item["extra"] for item in sessions})
    figure, rows = plt.subplots(1, len(amounts), figsize=(4.2 * len(amounts), 4), squeeze=False, layout="constrained")
    for axes, amount in zip(rows[0], amounts, strict=True):
        good = [item for item in sessions if item["extra"] == amount and "ratio" in item]
        for verdict, colour in _COLOURS.items():
            chosen = [item for item in good if item["verdict"] == verdict]
            if chosen:
                axes.scatter(
                    [item["eager_us"] for item in chosen], [100 * (1 / item["ratio"] - 1) for item in chosen],
                    s=9, color=colour, label=f"{verdict} ({len(chosen)})", linewidths=0,
                )  # fmt: skip
        axes.axhline(100 * amount, color="black", linewidth=0.7)
        axes.set(xscale="log", xlabel="eager, µs a call", ylabel="measured extra time, %")
        axes.set_title(f"planted {amount:.0%}: {len(good)} sessions")
        if good:
            axes.legend(fontsize=8)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def throughput_picture(phases: dict[str, float], ours: float, beside: float, path: Path) -> None:
    """Draw the seconds of a subgraph by phase, beside those of a harness that starts an interpreter for each."""
    figure, axes = plt.subplots(figsize=(8, 2.8), layout="constrained")
    start = 0.0
    colours = plt.get_cmap("tab10").colors
    seen = {name: seconds for name, seconds in phases.items() if seconds >= 5e-4}  # others would not be seen
    for index, (name, seconds) in enumerate(seen.items()):
        label = f"{name} {1000 * seconds:.0f} ms"
        axes.barh(["passbench"], [seconds], left=[start], label=label, color=colours[index % 10])
        start += seconds
    label = f"starting Python, importing torch {beside:.2f} s"
    axes.barh(["an interpreter\nfor each"], [beside], color="#b0b0b0", label=label)
    axes.set(xlabel=f"seconds a subgraph (ours: {ours:.2f} s, median)")
    axes.legend(fontsize=7, ncols=2, loc="center left", bbox_to_anchor=(1.01, 0.5))
    figure.savefig(path, dpi=130)
    plt.close(figure)


def histogram(values: Sequence[float], log: bool, label: str, path: Path) -> None:
    """Write a histogram, on a logarithmic scale if ``log`` is true; a line marks the speed-up 1."""
    figure, axes = plt.subplots(figsize=(5.2, 2.4), dpi=110)
    axes.hist(values, bins=_bins(values, log), color=_BAR, edgecolor="white", linewidth=0.5)
    if log:
        axes.set_xscale("log")
    if "speed-up" in label:
        axes.axvline(1.0, color=_INK, linewidth=1, linestyle="--")
    axes.set_xlabel(label, color=_INK)
    axes.set_ylabel("count", color=_INK)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def _bins(values: Sequence[float], log: bool) -> list[float]:
    low, high = min(values), max(values)
    if not log:
        step = max(1, round((high - low) / 32))
        return [low - 0.5 + step * i for i in range(int((high - low) / step) + 2)]
    ratio = (high / low) ** (1 / 30) if high > low else 2.0
    return [low * ratio**i for i in range(31)]
