"""The names of a run's arms; a baseline is named by its compiler."""

from __future__ import annotations

CANDIDATE = "candidate"
EAGER = "eager"
TWIN = "eager-again"  # eager in a second sandbox: what differs between the two is the machine's noise
FLOAT64 = "float64"  # eager in double precision: called in the probe only, never timed for a score
