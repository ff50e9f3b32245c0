"""astrid:http, bounds: time, size, and what a few bytes may unfold to."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import brotli  # type: ignore[import-untyped]
import pytest
import trio
import trio.testing
from http_functions import OK, READ, Asked, answer, functions, options, request, talking
from named_functions import NamedFunctions

from astrid_host.errors import HostError
from astrid_host.hostcalls.http.wire import Line

MIB = 1 << 20
MOST = 10 * MIB


async def endless(stream: Any, _asked: Asked) -> None:
    await stream.send_all(OK + b"\r\n")
    while True:
        await stream.send_all(bytes(1 << 16))


async def silent(stream: Any, _asked: Asked) -> None:
    await trio.sleep_forever()


async def slow_headers(stream: Any, _asked: Asked) -> None:
    await stream.send_all(OK)
    while True:
        await stream.send_all(b"x-more: y\r\n")
        await trio.sleep(0.005)


async def stalled(stream: Any, _asked: Asked) -> None:
    await stream.send_all(OK + b"content-length: 10\r\n\r\nabc")
    await trio.sleep_forever()


async def trickling(stream: Any, _asked: Asked) -> None:
    await stream.send_all(OK + b"\r\n")
    while True:
        await stream.send_all(b".")
        await trio.sleep(0.005)


LATE = [
    (silent, {"first": 30}),
    (slow_headers, {"first": 30}),
    (stalled, {"between": 30}),
    (trickling, {"total": 50, "between": 5000}),
    (silent, {"total": 30}),
    (silent, {"total": 0}),
]


@pytest.mark.parametrize(("handler", "times"), LATE)
async def test_what_takes_too_long_is_a_timeout_and_its_connection_is_closed(handler: Any, times: Any) -> None:
    async with talking(handler) as (http, server):
        assert await http.case("http-request-opts", request(server.url()), options(**times)) == "timeout"


async def test_a_connection_that_nobody_accepts_is_a_timeout() -> None:
    with trio.socket.socket() as full:
        await full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        waiting = [trio.socket.socket() for _ in range(4)]
        async with trio.open_nursery() as nursery:
            for sock in waiting:
                nursery.start_soon(sock.connect, ("127.0.0.1", port))
            await trio.testing.wait_all_tasks_blocked(0.05)
            async with functions(f"127.0.0.1:{port}") as http:
                url = f"http://127.0.0.1:{port}/"
                assert await http.case("http-request-opts", request(url), options(connect=30)) == "timeout"
            nursery.cancel_scope.cancel()
        for sock in waiting:
            sock.close()


async def test_a_name_that_is_not_answered_for_is_a_timeout() -> None:
    async def never(name: str, port: int) -> list[str]:
        await trio.sleep_forever()
        raise AssertionError

    async with talking(silent, resolve=never) as (http, _server):
        given = options(connect=20)
        assert await http.case("http-request-opts", request("http://slow.example/"), given) == "timeout"


async def test_an_endless_body_is_too_large() -> None:
    async with talking(endless, "1.0") as (http, server):
        assert await http.case("http-request", request(server.url())) == "body-too-large"


async def test_a_body_of_ten_mib_passes_and_one_byte_more_does_not() -> None:
    async with talking(answer(bytes(MOST))) as (http, server):
        assert len((await http("http-request", request(server.url()))).body) == MOST
    async with talking(answer(bytes(MOST + 1))) as (http, server):
        assert await http.case("http-request", request(server.url())) == "body-too-large"


async def test_a_body_that_says_it_is_too_large_is_not_even_read() -> None:
    async def handler(stream: Any, _asked: Asked) -> None:
        await stream.send_all(OK + b"content-length: 9999999999\r\n\r\n")
        await server.hung_up(stream)

    async with talking(handler, "1.0") as (http, server):
        assert await http.case("http-request", request(server.url())) == "body-too-large"
        await server.gone.wait()


async def test_options_lower_the_bounds_and_cannot_raise_them() -> None:
    async with talking(answer(bytes(1000))) as (http, server):
        asked = request(server.url())
        assert await http.case("http-request-opts", asked, options(max_response_bytes=999)) == "body-too-large"
        assert len((await http("http-request-opts", asked, options(max_response_bytes=1000))).body) == 1000
    async with talking(endless) as (http, server):
        asked = request(server.url())
        given = options(max_response_bytes=1 << 60, total=1 << 60)
        assert await http.case("http-request-opts", asked, given) == "body-too-large"


async def test_a_request_of_more_than_ten_mib_is_not_sent() -> None:
    async with talking(answer()) as (http, server):
        assert (await http("http-request", request(server.url(), "post", body=bytes(MOST)))).status == 200
        assert await http.case("http-request", request(server.url(), "post", body=bytes(MOST + 1))) == "body-too-large"


def bomb(encoding: str, size: int) -> bytes:
    """So many zeroes, compressed without ever being there at once."""
    if encoding == "br":
        brotli_packer = brotli.Compressor(quality=1)
        return b"".join(brotli_packer.process(bytes(MIB)) for _ in range(size // MIB)) + bytes(brotli_packer.finish())
    packer = zlib.compressobj(9, zlib.DEFLATED, 31 if encoding == "gzip" else 15)
    return b"".join(packer.compress(bytes(MIB)) for _ in range(size // MIB)) + packer.flush()


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br"])
async def test_a_bomb_is_too_large_and_takes_no_memory(encoding: str) -> None:
    raw = bomb(encoding, 200 * MIB)
    async with talking(answer(raw, f"content-encoding: {encoding}")) as (http, server):
        asked = request(server.url())
        tracemalloc.start()
        try:
            assert await http.case("http-request", asked) == "body-too-large"
            given = options(max_decompressed_bytes=5 * MIB)
            assert await http.case("http-request-opts", asked, given) == "decompression-bomb"
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < MOST + 4 * MIB


async def read_all(http: NamedFunctions, stream: Any) -> int:
    total = 0
    while chunk := await http(READ, stream):
        assert len(chunk) <= 1 << 16
        total += len(chunk)
    return total


async def test_a_bomb_in_a_stream_comes_a_piece_at_a_time() -> None:
    async with talking(answer(bomb("gzip", 100 * MIB), "content-encoding: gzip")) as (http, server):
        stream = await http("http-stream-start", request(server.url()))
        assert await read_all(http, stream) == 100 * MIB
        stream.close()
        given = options(max_decompressed_bytes=MIB)
        stream = await http("http-stream-start-opts", request(server.url()), given)
        with pytest.raises(HostError, match="unfolds to more") as caught:
            await read_all(http, stream)
        assert caught.value.case == "decompression-bomb"
        stream.close()


RAW = zlib.compressobj(9, zlib.DEFLATED, -15)
PLAIN = b"plain text, " * 20_000
ENCODED = {
    "gzip": gzip.compress(PLAIN),
    "x-gzip": gzip.compress(PLAIN[:1000]) + gzip.compress(PLAIN[1000:]) + bytes(512),
    "deflate": zlib.compress(PLAIN),
    "Deflate": RAW.compress(PLAIN) + RAW.flush(),
    "br": brotli.compress(PLAIN),
}


@pytest.mark.parametrize("encoding", ENCODED)
async def test_a_compressed_body_is_unfolded(encoding: str) -> None:
    raw = ENCODED[encoding]
    async with talking(answer(raw, f"content-encoding: {encoding}")) as (http, server):
        response = await http("http-request", request(server.url()))
        kept = await http("http-request-opts", request(server.url()), options(auto_decompress=False))
    assert response.body == PLAIN
    assert {"content-encoding", "content-length"}.isdisjoint(pair.key for pair in response.headers)
    assert response.meta.wire_bytes == len(raw)
    assert kept.body == raw
    assert {"content-encoding", "content-length"} <= {pair.key for pair in kept.headers}
    assert "accept-encoding" not in server.asked[1].headers


@pytest.mark.parametrize("encoding", ["zstd", "gzip, br", "identity"])
async def test_what_cannot_be_unfolded_is_handed_on_as_it_is(encoding: str) -> None:
    async with talking(answer(b"raw", f"content-encoding: {encoding}")) as (http, server):
        response = await http("http-request", request(server.url()))
    assert response.body == b"raw"
    assert encoding in [pair.value for pair in response.headers if pair.key == "content-encoding"]


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br"])
@pytest.mark.parametrize("spoilt", ["cut", "garbage"])
async def test_a_body_that_is_not_compressed_as_it_says_is_no_http(encoding: str, spoilt: str) -> None:
    raw = ENCODED[encoding][:-9] if spoilt == "cut" else b"\xff" * 100
    async with talking(answer(raw, f"content-encoding: {encoding}")) as (http, server):
        assert await http.case("http-request", request(server.url())) == "protocol"


async def turns_while(work: Callable[[], Awaitable[None]]) -> int:
    """How many turns another task of the loop gets meanwhile."""
    scheduler = 0

    async def count() -> None:
        nonlocal scheduler
        while True:
            await trio.lowlevel.checkpoint()
            scheduler += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        await work()
        nursery.cancel_scope.cancel()
    return scheduler


async def test_many_tiny_chunks_let_the_loop_go_on() -> None:
    async def handler(stream: Any, _asked: Asked) -> None:
        await stream.send_all(OK + b"transfer-encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 20_000 + b"0\r\n\r\n")

    async def work() -> None:
        assert len((await http("http-request", request(server.url()))).body) == 20_000

    async with talking(handler) as (http, server):
        assert await turns_while(work) > 20_000


async def test_before_a_body_little_is_read_at_once_so_that_interim_responses_let_the_loop_go_on() -> None:
    server, client = trio.testing.memory_stream_pair()
    await server.send_all(b"HTTP/1.1 100\r\n\r\n" * 10_000)
    line = Line(client, 1.0)
    assert len(await line.read(1 << 16)) == 1 << 12
    line.body_begins()
    assert len(await line.read(1 << 20)) == 1 << 16


async def test_interim_responses_are_passed_over() -> None:
    async def handler(stream: Any, _asked: Asked) -> None:
        await stream.send_all(b"HTTP/1.1 100\r\n\r\n" * 1_000 + OK + b"content-length: 0\r\n\r\n")

    async with talking(handler) as (http, server):
        assert (await http("http-request", request(server.url()))).status == 200


@pytest.mark.parametrize("encoding", ["gzip", "br"])
async def test_a_bomb_lets_the_loop_go_on(encoding: str) -> None:
    raw = bomb(encoding, 9 * MIB)

    async def work() -> None:
        assert len((await http("http-request", request(server.url()))).body) == 9 * MIB

    async with talking(answer(raw, f"content-encoding: {encoding}")) as (http, server):
        assert await turns_while(work) > 9 * MIB / (1 << 18)


async def test_a_response_has_a_thousand_headers_at_most() -> None:
    for count, most in ((999, True), (1000, False)):
        async with talking(answer(b"", *["a: b"] * count)) as (http, server):
            if most:
                assert len((await http("http-request", request(server.url()))).headers) == 1000
            else:
                assert await http.case("http-request", request(server.url())) == "protocol"
