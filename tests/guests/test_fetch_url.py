"""`fetch_url` on pages as servers send them: in any charset, with repeated headers, as text or Markdown, and what is no text."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
from http_functions import Asked, serving

from astrid_host import BUNDLED, Host, open_host

PAGE = (
    "<!doctype html><html><head><title>t</title><style>p{}</style></head><body><h1>Café</h1>"
    "<p>One <a href='https://a.example/'>link</a>.</p><script>alert(1)</script></body></html>"
)
Page = tuple[str, bytes]
DECODED: dict[str, tuple[Page, str]] = {
    "/latin1": (("text/html; charset=iso-8859-1", "café naïve".encode("latin-1")), "café naïve"),
    "/sjis": (("text/html; charset=Shift_JIS", "日本語".encode("shift_jis")), "日本語"),
    "/gbkmeta": (("text/html", '<meta charset="gbk">中文'.encode("gbk")), '<meta charset="gbk">中文'),
    "/utf16": (("text/plain; charset=utf-16", "héllo".encode("utf-16")), "héllo"),
    "/mark": (("text/plain; charset=latin1", b"\xef\xbb\xbf" + "é".encode()), "é"),
    "/quoted": (("text/plain; x=y; charset='windows-1252'", b"\x93hi\x94"), "“hi”"),
    "/guessed": (
        ("text/plain", "Привет, как дела? Это обычный текст.".encode("cp1251")),
        "Привет, как дела? Это обычный текст.",
    ),
    "/nonsense": (("text/plain; charset=nonsense", "é".encode()), "é"),
    "/json": (("application/json", '{"a":"é"}'.encode()), '{"a":"é"}'),
    "/nokind": (("", b"plain"), "plain"),
}
OTHER: dict[str, Page] = {
    "/page": ("text/html; charset=latin1", PAGE.encode("latin-1")),
    "/deep": ("text/html", b"<div>" * 50_000),
    "/pdf": ("application/pdf", b"%PDF-1.4\n\xff\xfe\0\1" * 10),
    "/zip": ("application/octet-stream", b"PK\3\4\0\0"),
    "/long": ("text/plain; charset=latin1", "é".encode("latin-1") * (150 << 10)),
}


@asynccontextmanager
async def web(place: Path) -> AsyncIterator[Any]:
    async def handler(stream: Any, asked: Asked) -> None:
        path = asked.target
        kind, body = DECODED[path][0] if path in DECODED else OTHER[path]
        told = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nSet-Cookie: a=1\r\nset-cookie: b=2\r\n"
        told += f"Content-Type: {kind}\r\n" if kind else ""
        await stream.send_all(told.encode() + b"\r\n" + body)

    folders = [BUNDLED / name for name in ("router", "dead-letter", "http")]
    async with serving(handler) as server:
        options: dict[str, Any] = {"state_dir": ":memory:", "workspace": place}
        async with open_host(folders, allow_local=[f"127.0.0.1:{server.port}"], **options) as host:

            async def fetch(path: str, **more: Any) -> Any:
                return await fetched(host, server.url(path), **more)

            yield fetch


async def fetched(host: Host, url: str, **more: Any) -> Any:
    with trio.fail_after(30):
        result = await host.tools.execute("fetch_url", {"url": url, **more})
    assert not result.is_error, result.content
    return json.loads(result.content)


async def test_a_body_is_text_in_whatever_charset_it_came(tmp_path: Path) -> None:
    async with web(tmp_path) as fetch:
        bodies = {path: (await fetch(path))["body"] for path in DECODED}
    assert bodies == {path: text for path, (_, text) in DECODED.items()}


async def test_a_page_is_told_as_it_came_or_as_models_read_it(tmp_path: Path) -> None:
    async with web(tmp_path) as fetch:
        assert (await fetch("/page"))["body"] == PAGE
        markdown = (await fetch("/page", format="markdown"))["body"]
        text = (await fetch("/page", format="text"))["body"]
        assert (await fetch("/json", format="markdown"))["body"] == '{"a":"é"}'
        deep = await fetch("/deep", format="text")
    assert "# Café" in markdown
    assert "[link](https://a.example/)" in markdown
    assert "Café" in text
    assert "a.example" not in text
    assert "alert" not in markdown + text
    assert "as it came" in deep["note"]


async def test_each_value_of_a_repeated_header_is_there(tmp_path: Path) -> None:
    async with web(tmp_path) as fetch:
        headers = (await fetch("/json"))["headers"]
    assert {name.lower(): value for name, value in headers.items()}["set-cookie"] == "a=1\nb=2"


async def test_what_is_no_text_is_told_and_left_out(tmp_path: Path) -> None:
    async with web(tmp_path) as fetch:
        for path in ("/pdf", "/zip"):
            told = await fetch(path)
            assert (told["body"], told["truncated"]) == ("", True)
            assert f"{len(OTHER[path][1])} bytes of {OTHER[path][0]}" in told["note"]


async def test_what_is_cut_ends_with_a_whole_character(tmp_path: Path) -> None:
    async with web(tmp_path) as fetch:
        told = await fetch("/long")
    assert told["truncated"]
    assert told["charset"] == "windows-1252"
    assert set(told["body"]) == {"é"}
