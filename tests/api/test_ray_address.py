"""Joining a Ray cluster, with stand-ins for Ray and for the network."""

from __future__ import annotations

import socket
import sys
from types import SimpleNamespace

import pytest

from pytest_passbench.api.cluster import connected


@pytest.mark.parametrize(("address", "reached"), [
    ("[::1]:6379", ("::1", 6379)), ("ray://[fe80::2]:10001", ("fe80::2", 10001)), ("head:6379", ("head", 6379)),
])  # fmt: skip
def test_an_address_is_tried_before_ray_is(monkeypatch, address, reached):
    monkeypatch.setenv("RAY_DEDUP_LOGS_SKIP_REGEX", "")
    ray = SimpleNamespace(is_initialized=lambda: False, init=lambda **_options: None)
    monkeypatch.setitem(sys.modules, "ray", ray)
    tried = []

    def reach(place, timeout):
        tried.append(place)
        return SimpleNamespace(close=lambda: None)

    monkeypatch.setattr(socket, "create_connection", reach)
    assert connected(address) == (ray, True)
    assert tried == [reached]
