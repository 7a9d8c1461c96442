"""Where a subgraph's calls are made: what its clock, its verification and its audits have in common."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_passbench.core.seed import Secret
from pytest_passbench.judge.inputs import Inputs
from pytest_passbench.judge.inputs.pages import Pages
from pytest_passbench.judge.machine.awake import Awake
from pytest_passbench.judge.machine.cores import Cores
from pytest_passbench.judge.stopwatch import Stopwatch
from pytest_passbench.protocol import Layout


@dataclass(frozen=True)
class Bench:
    """One subgraph's inputs and their pages, the cores of its arms, its secret draws, and the account of its time.

    ``tolerance`` is the t at which outputs must agree.
    """

    layout: Layout
    pages: Pages
    inputs: Inputs
    cores: Cores
    awake: Awake
    secret: Secret
    phases: Stopwatch
    tolerance: int
