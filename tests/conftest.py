"""What tests share: a workspace, and what is skipped on this machine.

Tests lie in folders by the room of the package that they are about, and those of the whole checkout lie here.
Modules that several tests import lie in support/.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from shared.workspace import AS_EAGER, Judges, Workspace, make_cpp_pass, make_wrapper
from support.paths import TESTS

# How long an example takes says how busy the machine is, not whether the code is right.
# A checkout that only judges has no hypothesis.
with contextlib.suppress(ModuleNotFoundError):
    from hypothesis import settings

    settings.register_profile("untimed", deadline=None)
    settings.load_profile("untimed")

# A shell's background process ignores SIGINT, and one of nohup SIGHUP. Processes of tests would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# A judge does so in its process, too. For the small tensors of the tests, threads wait longer than they work.
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def judges() -> Iterator[Judges]:
    """Judges for all tests, whose sandboxes start once."""
    with Judges() as found:
        yield found


@pytest.fixture
def bench(tmp_path: Path, judges: Judges) -> Workspace:
    return Workspace(tmp_path, judges)


@pytest.fixture(scope="module")
def shared_bench(tmp_path_factory: pytest.TempPathFactory, judges: Judges) -> Workspace:
    """A workspace for all tests of a module, so that it judges once."""
    return Workspace(tmp_path_factory.mktemp("bench"), judges)


@pytest.fixture
def twin(bench: Workspace, wrapper: Callable[..., str]) -> Workspace:
    """A candidate that does what eager does, and three subgraphs for it."""
    bench.task(shapes=((64, 256), (64, 256)), scales=(1, 4, 16))
    bench.candidate({"p": wrapper(AS_EAGER)})
    return bench


@pytest.fixture
def gelu_add_pass() -> str:
    return make_cpp_pass()


@pytest.fixture(scope="session")
def wrapper() -> Callable[..., str]:
    return make_wrapper


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "bubblewrap: needs the strong sandbox")
    config.addinivalue_line("markers", "sandbox: depends on the sandboxes of this machine and user")
    config.addinivalue_line("markers", "root: needs the superuser, and an interpreter that everybody can run")


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark tests that start sandboxes of this machine and user, so that .ci/run can run them alone."""
    starts = {"judges", "builder"} & {*getattr(item, "fixturenames", ())} or item.get_closest_marker("bubblewrap")
    if starts or TESTS / "walls" in item.path.parents:
        item.add_marker("sandbox")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip tests that need what this machine lacks, with a reason. Leave out slow tests that are not drawn."""
    drawn = {item: _is_drawn(item) for item in items}
    config.hook.pytest_deselected(items=[item for item in items if not drawn[item]])
    items[:] = [item for item in items if drawn[item]]
    for name, (is_there, reason) in NEEDS.items():
        marked = [item for item in items if item.get_closest_marker(name)]
        if marked and not is_there():
            for item in marked:
                item.add_marker(pytest.mark.skip(reason=reason))


def _is_drawn(item: pytest.Item) -> bool:
    """Return True unless ``PASSBENCH_SLOW_TESTS=N:SEED`` leaves a slow test out.

    Of the slow tests without the mark ``sample``, one in N stays. Which ones these are depends on the seed.
    """
    share, _, seed = os.environ.get("PASSBENCH_SLOW_TESTS", "1").partition(":")
    if not item.get_closest_marker("slow") or item.get_closest_marker("sample"):
        return True
    return zlib.crc32(f"{seed} {item.nodeid}".encode()) % int(share) == 0


def _has_gpu() -> bool:
    return torch.cuda.is_available()


def _has_bubblewrap() -> bool:
    from pytest_passbench.judge.arms import sandbox

    return sandbox.walls().strong


def _has_other_user() -> bool:
    """Return True if we may become another user who can run this interpreter."""
    try:
        tried = subprocess.run([sys.executable, "-c", ""], user=65534, check=False) if os.geteuid() == 0 else None
        return tried is not None and tried.returncode == 0
    except OSError:
        return False


NEEDS = {
    "gpu": (_has_gpu, "needs a CUDA device"),
    "bubblewrap": (_has_bubblewrap, "needs bubblewrap"),
    "root": (_has_other_user, "needs the superuser, and an interpreter that everybody can run"),
}
