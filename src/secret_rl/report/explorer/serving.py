"""A page on loopback, for machines whose files a browser cannot open."""

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def server(path: Path, port: int = 0) -> ThreadingHTTPServer:
    """A server of one file, on 127.0.0.1 alone; port 0 takes a free one."""
    content = path.read_bytes()

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path in ("/", f"/{path.name}")
            body, kind = (content, "text/html; charset=utf-8") if found else (b"not here\n", "text/plain")
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    try:
        return ThreadingHTTPServer(("127.0.0.1", port), Page)
    except OverflowError:
        raise ValueError(f"port must lie between 0 and 65535, got {port}") from None
    except OSError as refused:
        raise OSError(f"port {port} of 127.0.0.1 cannot be used ({refused.strerror}): name another one") from refused
