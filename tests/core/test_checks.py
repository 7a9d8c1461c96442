"""Checks of single settings."""

from __future__ import annotations

from argparse import ArgumentTypeError

import pytest

from pytest_passbench.core.checks import fraction


@pytest.mark.parametrize(
    ("text", "share"), [("3%", 0.03), ("0.03", 0.03), ("0", 0.0), ("0%", 0.0), ("99.5%", 0.995), ("2.5 %", 0.025)]
)
def test_a_share_is_a_number_below_1_or_a_percentage(text, share):
    assert fraction(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["3", "1", "100%", "-1%", "nan", "nan%", "inf", "", "%", "3%%", "three"])
def test_anything_else_is_no_share(text):
    with pytest.raises(ArgumentTypeError):
        fraction(text)
