"""A service over HTTP, with the standard library. Every request needs the token, and gets one answer."""

from __future__ import annotations

import contextlib
import hmac
import io
import json
import re
import select
import socket
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from pytest_passbench.agents.service import Answer, Refused, Service
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import abbreviated
from pytest_passbench.core.jsontext import read
from pytest_passbench.core.rejected import Rejected

MAX_HEAD_BYTES, MAX_BODY_BYTES = 16 << 10, 1 << 20
MAX_CONNECTIONS = 128
LINGER_SECONDS, LINGER_BYTES, LINGER_PIECE = 2.0, 16 << 20, 1 << 16
"""For how long, and how much of, a refused request's body is read, in pieces, before its connection is closed."""
HEAD_SECONDS = 10.0  # for the first request line and its headers, until a client has shown the token
READ_SECONDS = 30.0  # for later ones, for each piece of a body, and for an answer to be taken


class EnvironmentServer(ThreadingHTTPServer):
    """A server of environments on a host and a port; port 0 is any that is free. A thread serves each connection.

    Connections beyond MAX_CONNECTIONS are closed at once. Raises UserError if it cannot listen there.
    """

    daemon_threads = True
    request_queue_size = MAX_CONNECTIONS

    def __init__(self, service: Service, token: str, host: str, port: int) -> None:
        self.service, self._token = service, token.encode()
        self._places = threading.BoundedSemaphore(MAX_CONNECTIONS)
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise UserError(f"cannot listen: {reason}", where=f"{host}:{port}", remedy="name another port") from None

    def server_bind(self) -> None:
        """Bind the socket. The host's name is not looked up, which might ask a network."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def knows(self, authorization: str) -> bool:
        """Return True if a header has the token. The time that this takes does not depend on the token."""
        return hmac.compare_digest(authorization.encode("utf-8", "surrogateescape"), b"Bearer " + self._token)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread, or close it if there are too many."""
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection, and give its place back."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error, unless the client has closed the connection or does not answer."""
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """A connection: one request after the other, each answered as JSON."""

    protocol_version = "HTTP/1.1"
    timeout = READ_SECONDS
    server_version, sys_version = "passbench", ""
    server: EnvironmentServer
    _head_seconds = HEAD_SECONDS

    def handle_one_request(self) -> None:
        """Serve a request. Close the connection if its request line and headers are too long or come too late."""
        end, head = time.monotonic() + self._head_seconds, bytearray()
        stream: Any = self.rfile
        while not head.endswith((b"\n\n", b"\n\r\n")):
            self.connection.settimeout(max(end - time.monotonic(), 0.001))
            if len(head) == MAX_HEAD_BYTES or not stream.peek(1):
                self.close_connection = True
                return
            head += stream.read(1)
        self.connection.settimeout(READ_SECONDS)
        self._stream, self.rfile = stream, io.BufferedReader(io.BytesIO(head))
        super().handle_one_request()

    def parse_request(self) -> bool:
        """Parse the headers, which were read already. Then let the body be read from the connection."""
        try:
            return super().parse_request()
        finally:
            self.rfile = self._stream

    def do_GET(self) -> None:
        self._serve({"/health": self.server.service.health, "/state": self._state})

    def do_POST(self) -> None:
        service = self.server.service
        self._serve({
            "/reset": lambda: service.reset(self._body()),
            "/step": lambda: service.step(self._body(), self._is_awaited),
            "/close": lambda: service.close(self._body()),
        })  # fmt: skip

    def _serve(self, places: dict[str, Callable[[], Answer]]) -> None:
        self._unread = self.command == "POST" or bool({"Content-Length", "Transfer-Encoding"} & {*self.headers})
        try:
            if not self.server.knows(self.headers.get("Authorization", "")):
                raise Refused(401, "the request needs the header Authorization: Bearer TOKEN")
            self._head_seconds = READ_SECONDS
            try:
                path = urlsplit(self.path).path
            except ValueError:
                raise Refused(400, f"not a valid request target: {abbreviated(self.path, 80)}") from None
            if path not in places:
                raise Refused(404, f"nothing is at {self.command} {abbreviated(path, 80)}")
            self._answer(200, places[path]())
        except Refused as refusal:
            self._answer(refusal.code, {"error": refusal.message})

    def _state(self) -> Answer:
        names = parse_qs(urlsplit(self.path).query).get("session", [""])
        return self.server.service.state(names[0])

    def _body(self) -> dict[str, Any]:
        """Return the JSON object of the request. Raises Refused."""
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch(r"[0-9]{1,12}", length):
            raise Refused(411, "the request needs a Content-Length")
        if int(length) > MAX_BODY_BYTES:
            raise Refused(413, f"the request has more than {MAX_BODY_BYTES} bytes")
        data = self.rfile.read(int(length))
        self._unread = False
        try:
            request = read(data)
        except Rejected as refusal:
            raise Refused(400, f"the request {refusal.message}") from None
        if not isinstance(request, dict):
            raise Refused(400, "the request is no JSON object")
        return request

    def _is_awaited(self) -> bool:
        """Return False if the client has hung up."""
        try:
            readable = select.select([self.connection], [], [], 0)[0]
            return not readable or bool(self.connection.recv(1, socket.MSG_PEEK))
        except OSError:
            return False

    def _answer(self, code: int, answer: Answer) -> None:
        data = json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if code == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        if self._unread or code == 401:  # the rest of this request would be read as the next one
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)
        if self._unread:
            self._linger()

    def _linger(self) -> None:
        """Read for a moment what the client still sends. A client that cannot send it all might lose the answer."""
        end = time.monotonic() + LINGER_SECONDS
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.settimeout(LINGER_SECONDS)
            for _ in range(LINGER_BYTES // LINGER_PIECE):
                if time.monotonic() > end or not self.rfile.read1(LINGER_PIECE):
                    break

    def log_message(self, *_arguments: Any) -> None:
        """Log nothing: addresses and paths are private data of the clients."""
