"""A page on loopback, for machines whose files a browser cannot open."""

import re
import socket
import sys
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Timer
from typing import Any

# Any port: a tunnel to this machine may have another at its other end.
_LOOPBACK = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d+)?", re.IGNORECASE)
_PIECE = 1 << 16
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",  # in addition to that of the page
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Server(ThreadingHTTPServer):
    """Answers each request in a thread that does not keep the process from ending."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Quiet about clients that go away."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def server(path: Path, port: int = 0) -> Server:
    """A server of one file, on 127.0.0.1 alone; port 0 takes a free one.

    It answers requests that name this machine only: a page of another site whose name leads here by DNS would
    otherwise read it.
    """
    content = path.read_bytes()

    class Page(BaseHTTPRequestHandler):
        timeout = 10.0
        """Seconds that a client may take for its request, and for each piece of the answer."""

        def handle(self) -> None:
            self._patience = Timer(self.timeout, self._stop_reading)
            self._patience.daemon = True
            self._patience.start()
            try:
                super().handle()
            finally:
                self._patience.cancel()

        def do_GET(self) -> None:
            self._patience.cancel()
            status, kind, body = self._answer()
            self.send_response(status)
            for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **_HEADERS}.items():
                self.send_header(name, value)
            self.end_headers()
            for start in range(0, len(body) if self.command == "GET" else 0, _PIECE):
                self.wfile.write(body[start : start + _PIECE])

        do_HEAD = do_GET

        def _answer(self) -> tuple[int, str, bytes]:
            """Status, type and body."""
            hosts = self.headers.get_all("Host", [])
            if len(hosts) > 1 or (not hosts and self.request_version == "HTTP/1.1"):
                return 400, "text/plain", b"one Host header is needed\n"
            if hosts and not _LOOPBACK.fullmatch(hosts[0].strip()):
                return 421, "text/plain", b"only for this machine: open it as http://127.0.0.1 or http://localhost\n"
            if self.path in ("/", f"/{path.name}"):
                return 200, "text/html; charset=utf-8", content
            return 404, "text/plain", b"not here\n"

        def _stop_reading(self) -> None:
            with suppress(OSError):  # it has ended just now
                self.connection.shutdown(socket.SHUT_RD)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    try:
        return Server(("127.0.0.1", port), Page)
    except OverflowError:
        raise ValueError(f"port must lie between 0 and 65535, got {port}") from None
    except OSError as refused:
        raise OSError(f"port {port} of 127.0.0.1 cannot be used ({refused.strerror}): name another one") from refused
