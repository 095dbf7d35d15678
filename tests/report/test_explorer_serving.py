"""The explorer's server: for this machine only, and for clients that do not dawdle."""

import http.client
import socket
import time
from contextlib import contextmanager, suppress
from threading import Thread, active_count

import pytest

from secret_rl.report.explorer.serving import server

PAGE = b"<p>" + b"x" * 8_000_000  # more than lies between a server and a client that does not read


@contextmanager
def serving(tmp_path):
    path = tmp_path / "page.html"
    path.write_bytes(PAGE)
    with server(path) as running:
        thread = Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield running
        finally:
            running.shutdown()
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


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8000", "localhost", "LocalHost:1", "[::1]", "[::1]:80"])
def test_names_of_this_machine_are_answered(tmp_path, host):
    with serving(tmp_path) as running:
        response, body = answer(running, host=host)
    assert (response.status, body) == (200, PAGE)


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil.example", "127.0.0.1:", "10.0.0.1",
     "localhost:80@evil", "", "::1"],
)  # fmt: skip
def test_names_that_only_lead_here_are_refused(tmp_path, host):
    with serving(tmp_path) as running:
        response, body = answer(running, host=host)
    assert response.status == 421 and b"127.0.0.1" in body and b"<p>" not in body


def test_a_request_names_its_host_once(tmp_path):
    with serving(tmp_path) as running:
        assert answer(running, host=None)[0].status == 400
        twice = b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n"
        assert raw(running, twice).startswith(b"HTTP/1.0 400 ")
        assert raw(running, b"GET / HTTP/1.0\r\n\r\n").endswith(PAGE), "before HTTP/1.1 there was no such header"


def test_head_is_get_without_the_body(tmp_path):
    with serving(tmp_path) as running:
        for path, status in {"/": 200, "/page.html": 200, "/other": 404}.items():
            whole, body = answer(running, path=path)
            head, nothing = answer(running, "HEAD", path)
            assert whole.status == head.status == status and nothing == b""
            without_date = [[pair for pair in one.getheaders() if pair[0] != "Date"] for one in (whole, head)]
            assert without_date[0] == without_date[1]
            assert int(head.headers["Content-Length"]) == len(body)
        assert answer(running, "HEAD", host="evil.example")[0].status == 421
    assert whole.headers["X-Content-Type-Options"] == "nosniff"
    assert whole.headers["Cache-Control"] == "no-store"


def test_clients_that_are_idle_or_slow_are_hung_up_on(tmp_path):
    with serving(tmp_path) as running:
        assert running.RequestHandlerClass.timeout == 10
        running.RequestHandlerClass.timeout = 0.5
        before = active_count()
        address = running.server_address[:2]
        with (
            socket.create_connection(address, timeout=5) as idle,
            socket.create_connection(address, timeout=5) as slow,
            socket.create_connection(address, timeout=5) as deaf,
        ):
            deaf.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            slow.sendall(b"GET / HTTP/1.1\r\n")
            began = time.monotonic()
            while active_count() < before + 3:
                assert time.monotonic() - began < 5
            while active_count() > before and time.monotonic() - began < 5:
                time.sleep(0.1)
                with suppress(OSError):
                    slow.sendall(b"X")  # a word that never ends
            assert time.monotonic() - began < 4
            assert idle.recv(1) == b""
        assert answer(running)[1] == PAGE, "others are answered"


def test_clients_that_go_away_are_no_news(tmp_path, capfd):
    with serving(tmp_path) as running:
        for _ in range(3):
            with socket.create_connection(running.server_address[:2]) as client:
                client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        time.sleep(0.2)
        assert answer(running)[1] == PAGE
    assert capfd.readouterr().err == ""
