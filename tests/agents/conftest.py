"""What tests of environments share: a judge by words, and a guard before the network."""

from __future__ import annotations

import socket

import pytest

from support.told_backend import ToldBackend

LOOPBACK = ("127.0.0.1", "::1", "localhost", None)


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Refuse names and addresses of other machines."""
    resolve = socket.getaddrinfo

    def guarded(method):
        def call(self, address):
            if self.family != socket.AF_UNIX and address[0] not in LOOPBACK:
                raise AssertionError(f"a test asked for the network: {address}")
            return method(self, address)

        return call

    def resolved(host, *args, **keywords):
        if host not in LOOPBACK:
            raise AssertionError(f"a test asked for the network: {host}")
        return resolve(host, *args, **keywords)

    monkeypatch.setattr(socket.socket, "connect", guarded(socket.socket.connect))
    monkeypatch.setattr(socket.socket, "connect_ex", guarded(socket.socket.connect_ex))
    monkeypatch.setattr(socket, "getaddrinfo", resolved)


@pytest.fixture
def backend(monkeypatch):
    """A judge by words in a candidate's text, in the place of the process's own."""
    import pytest_passbench
    from pytest_passbench.agents import SharedJudge, answer_journal, environment, shared_judge

    backend, judges = ToldBackend(), []

    def process_judge():
        if not judges or judges[-1].closed:
            judges.append(SharedJudge(pytest_passbench.Evaluator(backend=backend)))
        return judges[-1]

    for module in (answer_journal, environment, shared_judge):
        monkeypatch.setattr(module, "process_judge", process_judge)
    return backend
