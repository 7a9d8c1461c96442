"""The objects that a subgraph's clock, verification and audits have in common."""

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
    """A subgraph's inputs and their pages, its arms' cores, its secret draws, and the account of its time.

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
