"""A guard for tests: sockets reach this machine alone."""

from __future__ import annotations

import socket

LOOPBACK = ("127.0.0.1", "127.0.0.2", "::1", "localhost", None)


def refuse_network(monkeypatch):
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
