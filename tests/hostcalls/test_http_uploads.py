"""astrid:http, requests bit by bit: how a body goes out, who waits for whom, and what ends it."""

from __future__ import annotations

from typing import Any

import trio
from http_functions import Asked, answer, functions, options, read_all, request, talking

from astrid_host.errors import HostError

WRITE = "[method]output-stream.write"
FINISH = "[method]http-upload.finish"


async def test_an_upload_goes_out_bit_by_bit() -> None:
    async with talking(answer(b"got it")) as (http, server):
        upload = await http("http-upload-start", request(server.url(), "put", [("X-A", "b")]), options())
        sink = await http("[method]http-upload.body-sink", upload)
        assert await http("[method]output-stream.check-write", sink) == 1 << 16
        await http(WRITE, sink, b"one ")
        await http("[method]output-stream.blocking-write-and-flush", sink, bytes(300_000))
        stream = await http(FINISH, upload)
        assert await read_all(http, stream) == b"got it"
        assert await http.case(WRITE, sink, b"late") == "closed"
        assert await http.case(FINISH, upload) == "closed"
        sink.close()
        upload.close()
        stream.close()
    asked = server.asked[0]
    assert (asked.method, asked.body) == ("PUT", b"one " + bytes(300_000))
    assert asked.headers["transfer-encoding"] == "chunked"
    assert asked.headers["x-a"] == "b"


async def test_an_upload_may_say_how_long_it_is_and_then_has_to_be() -> None:
    async with talking(answer(b"ok")) as (http, server):
        asked = request(server.url(), "put", [("Content-Length", "3")])
        upload = await http("http-upload-start", asked, options())
        await http(WRITE, upload.sink, b"abc")
        stream = await http(FINISH, upload)
        assert server.asked[0].headers["content-length"] == "3"
        assert "transfer-encoding" not in server.asked[0].headers
        stream.close()
        upload = await http("http-upload-start", asked, options())
        await http(WRITE, upload.sink, b"abcdef")
        assert await http.case(FINISH, upload) == "invalid-request"


async def test_an_upload_is_writable_again_when_the_server_takes_more() -> None:
    taking = trio.Event()

    async def slow(stream: Any, asked: Asked) -> None:
        await answer(str(len(asked.body)).encode())(stream, asked)

    async with talking(slow) as (http, server):
        server.before = taking
        upload = await http("http-upload-start", request(server.url(), "post"), options())
        writable = await http("[method]http-upload.subscribe-writable", upload)
        written = 0
        while True:  # until the buffers of both ends are full
            while (room := upload.sink.room()) > 0:
                await http(WRITE, upload.sink, bytes(room))
                written += room
            with trio.move_on_after(0.05) as waiting:
                await upload.sink.roomy()
            if waiting.cancelled_caught:
                break
        assert not writable.ready()
        assert await http("[method]output-stream.check-write", upload.sink) == 0
        assert await http.case(WRITE, upload.sink, b"x") == "last-operation-failed"
        taking.set()
        await upload.sink.flushed()
        assert writable.ready()
        stream = await http(FINISH, upload)
        assert await read_all(http, stream) == str(written).encode()
        stream.close()


async def test_dropping_an_upload_closes_its_connection() -> None:
    async with talking(answer()) as (http, server):
        server.before = trio.Event()
        upload = await http("http-upload-start", request(server.url(), "post"), options())
        sink = upload.sink
        upload.close()
        assert await http.case(WRITE, sink, b"x") == "closed"
        server.before.set()
        await server.gone.wait()


async def test_an_answer_before_the_end_of_an_upload_is_its_answer() -> None:
    async def early(stream: Any, _asked: Asked) -> None:
        await stream.send_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig")

    async with talking(early, head_only=True) as (http, server):
        upload = await http("http-upload-start", request(server.url(), "post"), options())
        for _ in range(400):
            try:
                await http("[method]output-stream.blocking-write-and-flush", upload.sink, bytes(1 << 16))
            except HostError:
                break
        stream = await http(FINISH, upload)
        assert await http("[method]http-stream.status", stream) == 413
        stream.close()


async def test_an_upload_cannot_be_sent_again_by_a_redirect() -> None:
    async with talking(answer(b"", "location: /b", status="307 Temporary Redirect")) as (http, server):
        upload = await http("http-upload-start", request(server.url(), "post"), options())
        await http(WRITE, upload.sink, b"abc")
        assert await http.case(FINISH, upload) == "redirect-blocked"


async def test_an_upload_into_which_nobody_writes_is_a_timeout() -> None:
    async with talking(answer()) as (http, server):
        upload = await http("http-upload-start", request(server.url(), "post"), options(between=30))
        await upload.sink.flushed()
        await http("[method]output-stream.blocking-write-and-flush", upload.sink, b"x")
        while upload.exchange.upload.over() is False:
            await trio.sleep(0.001)
        assert await http.case(FINISH, upload) == "timeout"


async def test_finishing_waits_for_headers_no_longer_than_it_may() -> None:
    async def silent(stream: Any, _asked: Asked) -> None:
        await server.hung_up(stream)

    async with talking(silent) as (http, server):
        upload = await http("http-upload-start", request(server.url(), "post"), options(first=20))
        assert await http.case(FINISH, upload) == "timeout"
        await server.gone.wait()


async def test_an_upload_has_no_body_at_its_start() -> None:
    async with functions() as http:
        asked = request("http://example.com/", "post", body=b"x")
        assert await http.case("http-upload-start", asked, options()) == "invalid-request"
