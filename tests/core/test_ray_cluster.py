"""Joining a Ray cluster, with a stand-in for Ray."""

from __future__ import annotations

import socket
import sys
from types import SimpleNamespace

import pytest

from pytest_passbench.core.ray_cluster import connect


def test_an_ipv6_address_in_brackets_is_reached(monkeypatch):
    monkeypatch.setenv("RAY_DEDUP_LOGS_SKIP_REGEX", "")
    ray = SimpleNamespace(is_initialized=lambda: False, init=lambda **_options: None)
    monkeypatch.setitem(sys.modules, "ray", ray)
    try:
        head = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6")
    with head:
        assert connect(f"[::1]:{head.getsockname()[1]}", "here").owned
