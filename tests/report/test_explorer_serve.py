"""The explorer's server: for this machine only, and with a time limit for its clients."""

import http.client
import socket
import time
from contextlib import suppress
from threading import Thread, active_count

import pytest

from secret_rl.report.explorer.serve import server

PAGE = b"<p>" + b"x" * 8_000_000  # more than fits between a server and a client that does not read
REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def running(tmp_path):
    path = tmp_path / "page.html"
    path.write_bytes(PAGE)
    with server(path) as one:
        thread = Thread(target=one.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield one
        one.shutdown()
        thread.join()


def answer(running, method="GET", path="/", host="127.0.0.1"):
    connection = http.client.HTTPConnection("127.0.0.1", running.server_address[1], timeout=5)
    connection.putrequest(method, path, skip_host=True)
    if host is not None:
        connection.putheader("Host", host)
    connection.endheaders()
    response = connection.getresponse()
    return response, response.read()


def raw(running, request: bytes) -> bytes:
    """What comes back for these bytes, until the server hangs up."""
    with socket.create_connection(running.server_address[:2], timeout=5) as client:
        client.sendall(request)
        return b"".join(iter(lambda: client.recv(1 << 16), b""))


def test_requests_that_name_this_machine_are_answered_and_no_others(running):
    for host in ("127.0.0.1", "127.0.0.1:8000", "localhost", "LocalHost:1", "[::1]", "[::1]:80"):
        response, body = answer(running, host=host)
        assert (response.status, body) == (200, PAGE), host
    for host in (
        "evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil.example", "127.0.0.1:",
        "10.0.0.1", "localhost:80@evil", "", "::1",
    ):  # fmt: skip
        response, body = answer(running, host=host)
        assert response.status == 421 and b"127.0.0.1" in body and b"<p>" not in body, host
    assert answer(running, host=None)[0].status == 400
    assert raw(running, REQUEST[:-2] + b"Host: evil.example\r\n\r\n").startswith(b"HTTP/1.0 400 ")
    assert raw(running, b"GET / HTTP/1.0\r\n\r\n").endswith(PAGE), "before HTTP/1.1 there was no such header"


def test_head_is_get_without_the_body(running):
    for path, status in {"/": 200, "/page.html": 200, "/other": 404, "/../secret": 404}.items():
        whole, body = answer(running, path=path)
        head, nothing = answer(running, "HEAD", path)
        assert whole.status == head.status == status and nothing == b""
        without_date = [[pair for pair in one.getheaders() if pair[0] != "Date"] for one in (whole, head)]
        assert without_date[0] == without_date[1]
        assert int(head.headers["Content-Length"]) == len(body)
    assert answer(running, "HEAD", host="evil.example")[0].status == 421
    assert (whole.headers["X-Content-Type-Options"], whole.headers["Cache-Control"]) == ("nosniff", "no-store")


def test_clients_that_are_idle_or_slow_are_hung_up_on(running):
    assert running.RequestHandlerClass.timeout == 10
    running.RequestHandlerClass.timeout = 0.5
    before = active_count()
    idle, slow, deaf = (socket.create_connection(running.server_address[:2], timeout=5) for _ in range(3))
    with idle, slow, deaf:
        deaf.sendall(REQUEST)
        slow.sendall(b"GET / HTTP/1.1\r\n")
        start = time.monotonic()
        while active_count() < before + 3:
            assert time.monotonic() - start < 5
        while active_count() > before and time.monotonic() - start < 5:
            time.sleep(0.1)
            with suppress(OSError):
                slow.sendall(b"X")  # a header that never ends
        assert time.monotonic() - start < 4
        assert idle.recv(1) == b""
    assert answer(running)[1] == PAGE, "others are answered"


def test_clients_that_disconnect_print_nothing(running, capfd):
    for _ in range(3):
        with socket.create_connection(running.server_address[:2]) as client:
            client.sendall(REQUEST)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    time.sleep(0.2)
    assert answer(running)[1] == PAGE
    assert capfd.readouterr().err == ""
