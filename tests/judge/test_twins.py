"""The benchmarks' judge of eager against eager: its stand-in for a candidate has all that the judge uses."""

from __future__ import annotations

import sys

import pytest

from pytest_passbench.core.settings import Settings
from support.paths import ROOT

sys.path.append(str(ROOT / "benchmarks"))
import engine

pytestmark = [pytest.mark.slow, pytest.mark.sandbox]


def test_eager_is_judged_against_eager():
    with engine.Twins(Settings(pipeline="direct")) as twins:
        record = twins.against(next(iter(engine.cases())))[-1]
    assert (record.arm.status, record.correct) == ("ran", True)
    assert record.arm.speed is not None
