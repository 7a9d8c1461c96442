"""The names of a run's arms. A baseline has the name of its compiler."""

from __future__ import annotations

CANDIDATE = "candidate"
EAGER = "eager"
REFERENCE = "reference"  # another candidate, in the same rounds (--passbench-against)
AGAINST = "against"  # no arm: the ratio of the reference's time to the candidate's
TWIN = "eager-again"  # eager in a second sandbox: any difference between the two is the machine's noise
ROUNDINGS = "roundings"  # a program, no arm: eager with and without its roundings, on a call with a wrong answer
FLOAT64 = "float64"  # eager in double precision: called for some of the verified calls, never timed for a score
