"""The connection of this process to a Ray cluster."""

from __future__ import annotations

import logging
import os
import socket
from dataclasses import dataclass
from typing import Any

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import line

INSTALL = "pip install 'pytest-passbench[ray]'"
OF_LOST_NODES = "Raylet is terminated|has been marked dead"
"""The log lines that Ray must not print: 45 lines about each node that is lost. Ray reads this pattern from an
environment variable when it is imported. The code that awaits the node's answer reports the loss in one line."""
REACH_SECONDS = 10.0  # for a cluster's head to answer


@dataclass(frozen=True)
class RayConnection:
    """The module ``ray``, connected to a cluster. ``owned`` is True if this process was not connected before."""

    ray: Any
    owned: bool

    def close(self) -> None:
        """Leave the cluster if :func:`connect` has joined it."""
        if self.owned:
            self.ray.shutdown()


def connect(address: str | None, where: str) -> RayConnection:
    """Join a cluster. ``address`` is as ``ray.init`` takes it; None joins RAY_ADDRESS, or starts one on this machine.

    Raises UserError if Ray is missing or no cluster answers. ``where`` says which input of the user asked for Ray.
    """
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", OF_LOST_NODES)
    try:
        import ray
    except ImportError:
        raise UserError("Ray is not installed", where=where, remedy=INSTALL) from None
    if ray.is_initialized():
        return RayConnection(ray, owned=False)
    try:
        _reach(address or os.environ.get("RAY_ADDRESS", ""))
        dashboard = False if address is None else None
        ray.init(address=address, log_to_driver=False, include_dashboard=dashboard, logging_level=logging.ERROR)
    except (OSError, ValueError, RuntimeError) as error:
        remedy = "start one with `ray start --head`, or leave the address out"
        raise UserError(f"no Ray cluster answers: {line(str(error))}", where=where, remedy=remedy) from None
    return RayConnection(ray, owned=True)


def _reach(address: str) -> None:
    """Raise OSError if nothing listens at an address with a port. Ray would try for many minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_SECONDS).close()
