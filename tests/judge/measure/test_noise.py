"""The noise of the machine, from eager against eager: on which subgraphs it is measured, and the figures."""

from __future__ import annotations

from pytest_passbench.judge.arms.names import TWIN
from pytest_passbench.judge.measure.noise import MIN_SESSIONS, Noise, merged
from pytest_passbench.timing.measurement import Arms, Block
from pytest_passbench.timing.rounds import Disturbance


def measured(values, arms=("eager", "candidate", TWIN)):
    """Return pairs of one round each, in which the twin takes ``1 + value`` times eager's time."""
    block = lambda seconds: Block(seconds, 1, Disturbance(seconds))  # noqa: E731
    return Arms(arms, [[{arm: block(1 + value if arm == TWIN else 1.0) for arm in arms}] for value in values])


def test_the_floor_is_measured_on_the_first_subgraphs_and_on_other_sizes():
    noise, asked = Noise(), []
    for size in [100] * 10 + [100_000] + [100] * 30:
        asked.append(noise.wants(size))
        noise.add(measured([0.0] * 6, ("eager", "candidate", TWIN) if asked[-1] else ("eager", "candidate")), size)
    assert asked[:MIN_SESSIONS] == [True] * MIN_SESSIONS
    assert not any(asked[MIN_SESSIONS:10])
    assert asked[10]
    assert sum(asked[11:]) == 1
    assert noise.to_json()["sessions"] == MIN_SESSIONS + 2


def test_delta_is_never_below_the_floor():
    noise = Noise()
    for index in range(8):
        noise.add(measured([0.05 if index % 2 else -0.05] * 6), 100)
    said = noise.to_json()
    assert said["width"] > 0.1
    assert said["delta"] == said["width"]


def test_the_noise_of_a_run_is_that_of_its_noisiest_worker():
    quiet = {"width": 0.01, "offset": 0.01, "sessions": 4, "delta": 0.02}
    loud = {"width": 0.05, "offset": 0.03, "sessions": 3, "delta": 0.05}
    assert merged([quiet, {}, loud]) == {**loud, "sessions": 7}
    assert merged([{}, {}]) == {}
