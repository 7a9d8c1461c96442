"""All rules by the operator's name."""

from pytest_passbench.fusion import elements, lookups, reductions, windows

RULES = {**elements.RULES, **reductions.RULES, **lookups.RULES, **windows.RULES}
