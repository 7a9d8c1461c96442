"""The options of a launch. Only numbers and switches for the compiler are allowed; none of them brings code."""

from __future__ import annotations

from collections.abc import Mapping

_RANGES = {
    "num_warps": (1, 64),
    "num_stages": (0, 64),
    "num_ctas": (1, 64),
    "maxnreg": (1, 1024),
    "waves_per_eu": (0, 64),
    "matrix_instr_nonkdim": (0, 64),
    "kpack": (1, 8),
}
_SWITCHES = frozenset({"enable_fp_fusion", "launch_cooperative_grid", "launch_pdl"})


def check_options(options: Mapping[str, object]) -> dict[str, int | bool]:
    """Return the options of a launch, without those that are None.

    Raises ValueError, with the option's name, for one that is not allowed (an external library) or out of range.
    """
    checked: dict[str, int | bool] = {}
    for name, value in options.items():
        if value is None and name in ("maxnreg", *_SWITCHES):
            continue
        if name in _SWITCHES:
            if type(value) is not bool:
                raise ValueError(f"the launch option {name} is True or False")
            checked[name] = value
        elif name in _RANGES:
            low, high = _RANGES[name]
            if type(value) is not int or not low <= value <= high:
                raise ValueError(f"the launch option {name} is a whole number from {low} to {high}")
            checked[name] = value
        else:
            raise ValueError(f"a Triton launch may not have the option {name!r:.40}")
    return checked
