"""astrid:http, responses bit by bit: chunks, streams, readiness, and what ends them."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import trio
import trio.testing
from http_functions import OK, READ, Asked, answer, functions, guest, options, read_all, request, talking

from astrid_host.errors import HostError


class Told:
    """A server whose body the test sends."""

    def __init__(self) -> None:
        self._send, self._sent = trio.open_memory_channel[bytes | None](100)
        self.gone = trio.Event()

    async def __call__(self, stream: Any, _asked: Asked) -> None:
        await stream.send_all(OK + b"transfer-encoding: chunked\r\nx-one: 1\r\n\r\n")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, stream)
            async for data in self._sent:
                await stream.send_all(b"%x\r\n%s\r\n" % (len(data or b""), data or b""))
                if not data:
                    break
            nursery.cancel_scope.cancel()

    async def _watch(self, stream: Any) -> None:
        with contextlib.suppress(trio.BrokenResourceError):
            while await stream.receive_some(1 << 16):
                pass
        self.gone.set()

    def send(self, data: bytes) -> None:
        self._send.send_nowait(data)

    def end(self) -> None:
        self._send.send_nowait(None)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_status_and_headers_are_there_before_the_first_chunk(version: str) -> None:
    told = Told()
    async with talking(told, version) as (http, server):
        stream = await http("http-stream-start", request(server.url()))
        assert await http("[method]http-stream.status", stream) == 200
        headers = await http("[method]http-stream.headers", stream)
        assert ("x-one", "1") in [(pair.key, pair.value) for pair in headers]
        told.send("ü".encode()[:1])
        assert await http(READ, stream) == b"\xc3"
        told.send("ü".encode()[1:])
        assert await http(READ, stream) == b"\xbc"
        told.end()
        assert [await http(READ, stream), await http(READ, stream)] == [b"", b""]
        stream.close()
        stream.close()


async def test_a_stream_has_no_trailers() -> None:
    async with talking(answer(b"x")) as (http, server):
        stream = await http("http-stream-start-opts", request(server.url()), options())
        assert await http("[method]http-stream.trailers", stream) is None
        stream.close()


async def test_a_pollable_is_ready_when_a_chunk_has_come_and_at_the_end() -> None:
    told = Told()
    async with talking(told) as (http, server):
        stream = await http("http-stream-start", request(server.url()))
        ready = await http("[method]http-stream.subscribe-readable", stream)
        woken = trio.Event()
        assert not ready.ready()
        with http.scheduler.lock:
            ready.when_ready(lambda: http.scheduler.call_soon(woken.set))
        told.send(b"abc")
        await woken.wait()
        assert ready.ready()
        assert await http(READ, stream) == b"abc"
        assert not ready.ready()
        told.end()
        while not ready.ready():
            await trio.sleep(0)
        assert await http(READ, stream) == b""
        assert ready.ready()
        stream.close()


async def test_the_body_is_a_stream_that_outlives_its_response() -> None:
    told = Told()
    async with talking(told) as (http, server):
        stream = await http("http-stream-start", request(server.url()))
        told.send(b"abcdef")
        body = await http("[method]http-stream.body-stream", stream)
        stream.close()
        assert await http("[method]input-stream.blocking-read", body, 4) == b"abcd"
        assert await http("[method]input-stream.blocking-skip", body, 1) == 1
        assert await http("[method]input-stream.read", body, 9) == b"f"
        assert await http("[method]input-stream.read", body, 9) == b""
        told.end()
        assert await http.case("[method]input-stream.blocking-read", body, 9) == "closed"
        body.close()
        body.close()


async def test_the_connection_is_closed_with_the_last_handle() -> None:
    told = Told()
    async with talking(told) as (http, server):
        stream = await http("http-stream-start", request(server.url()))
        body = await http("[method]http-stream.body-stream", stream)
        body.close()
        assert not told.gone.is_set()
        stream.close()
        await told.gone.wait()


async def test_closing_a_stream_ends_all_that_was_made_of_it() -> None:
    told = Told()
    async with talking(told) as (http, server):
        stream = await http("http-stream-start", request(server.url()))
        body = await http("[method]http-stream.body-stream", stream)
        told.send(b"never read")
        await http("[method]http-stream.close", stream)
        await http("[method]http-stream.close", stream)
        assert await http.case(READ, stream) == "closed"
        assert await http.case("[method]input-stream.blocking-read", body, 1) == "closed"
        await told.gone.wait()
        body.close()


async def test_closing_wakes_who_waits_for_a_chunk() -> None:
    told = Told()
    async with talking(told) as (http, server), trio.open_nursery() as nursery:
        stream = await http("http-stream-start", request(server.url()))
        nursery.start_soon(http.case, READ, stream)
        await trio.testing.wait_all_tasks_blocked(0.01)
        stream.close()


async def test_a_fast_server_waits_for_a_slow_guest() -> None:
    sent = 0

    async def handler(stream: Any, _asked: Asked) -> None:
        nonlocal sent
        await stream.send_all(OK + b"\r\n")
        while sent < 64 << 20:
            await stream.send_all(bytes(1 << 16))
            sent += 1 << 16

    async with talking(handler) as (http, server):
        stream = await http("http-stream-start", request(server.url()))
        before = -1
        while before != sent:  # until neither end goes on
            before = sent
            await trio.sleep(0.05)
        assert sent < 32 << 20
        assert stream.exchange.body.room() == 0
        total = 0
        while chunk := await http(READ, stream):
            total += len(chunk)
        assert total == 64 << 20
        stream.close()


async def test_what_breaks_a_body_comes_after_what_had_come() -> None:
    async def handler(stream: Any, _asked: Asked) -> None:
        await stream.send_all(OK + b"content-length: 9\r\n\r\nabc")

    async with talking(handler, "1.0") as (http, server):
        stream = await http("http-stream-start", request(server.url()))
        assert await http(READ, stream) == b"abc"
        assert [await http.case(READ, stream), await http.case(READ, stream)] == ["connection-error"] * 2
        body = await http("[method]http-stream.body-stream", stream)
        with pytest.raises(HostError) as caught:
            await http("[method]input-stream.blocking-read", body, 1)
        assert caught.value.case == "last-operation-failed"
        body.close()
        stream.close()


BOUNDS = [
    ({"between": 20}, "timeout"),
    ({"total": 40}, "timeout"),
    ({"max_response_bytes": 2}, "body-too-large"),
    ({"integrity": "sha256-" + "A" * 43 + "="}, "integrity-mismatch"),
]


@pytest.mark.parametrize(("given", "case"), BOUNDS)
async def test_options_hold_for_the_body_of_a_stream(given: Any, case: str) -> None:
    told = Told()
    async with talking(told) as (http, server):
        stream = await http("http-stream-start-opts", request(server.url()), options(**given))
        told.send(b"abc")
        if case == "integrity-mismatch":
            told.end()
        with pytest.raises(HostError) as caught:
            await read_all(http, stream)
        assert caught.value.case == case
        stream.close()


async def test_a_stream_whose_headers_do_not_come_is_a_timeout() -> None:
    async def silent(stream: Any, _asked: Asked) -> None:
        await server.hung_up(stream)

    async with talking(silent) as (http, server):
        given = options(first=20)
        assert await http.case("http-stream-start-opts", request(server.url()), given) == "timeout"
        await server.gone.wait()


async def test_a_guest_that_stops_waiting_for_headers_closes_the_connection() -> None:
    async def silent(stream: Any, _asked: Asked) -> None:
        asked.set()
        await server.hung_up(stream)

    asked = trio.Event()
    async with talking(silent) as (http, server):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(http, "http-stream-start", request(server.url()))
            await asked.wait()
            nursery.cancel_scope.cancel()
        await server.gone.wait()


async def test_an_instance_has_four_streams_and_another_one_its_own_four() -> None:
    async with talking(answer(b"x")) as (http, server):
        asked = request(server.url(), "post")
        open_ones = [await http("http-stream-start", asked) for _ in range(3)]
        open_ones.append(await http("http-upload-start", asked, options()))
        assert await http.case("http-stream-start", asked) == "quota"
        assert await http.case("http-upload-start", asked, options()) == "quota"
        assert (await http("http-request", asked)).status == 200
        open_ones.pop(0).close()
        open_ones.append(await http("http-stream-start", asked))
        assert await http.case("http-stream-start", asked) == "quota"
        first, http.call = http.call, guest("*")
        open_ones.append(await http("http-stream-start", asked))
        http.call = first
        for handle in open_ones:
            handle.close()
        (await http("http-stream-start", asked)).close()


async def test_what_failed_takes_no_place() -> None:
    async with functions() as http:
        for _ in range(10):
            assert await http.case("http-stream-start", request("http://127.0.0.1:1/")) == "airlock-rejected"
            assert (
                await http.case("http-upload-start", request("http://127.0.0.1:1/", "put"), options())
                == "airlock-rejected"
            )


async def test_an_audit_names_the_stream_by_what_was_asked() -> None:
    async with talking(answer()) as (http, server):
        stream = await http("http-stream-start", request(server.url("/a?b")))
        assert http.audited(READ, stream) == f"GET {server.url('/a')}"
        stream.close()
