"""astrid:http, TLS: what is trusted, for which name, and what else goes wrong."""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from http_functions import answer, options, request, serving, talking

NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)


def certificate(folder: Path, name: str, until: datetime.datetime = NOW + DAY) -> ssl.SSLContext:
    """A server's context with a certificate for `name` that it signed itself; it lies in `folder` as cert.pem."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - 2 * DAY)
        .not_valid_after(until)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "cert.pem").write_bytes(made.public_bytes(pem))
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(secret)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


async def resolve(name: str, port: int) -> Sequence[str]:
    return ["127.0.0.1"]


async def test_a_certificate_that_nobody_trusts_is_a_tls_error(tmp_path: Path) -> None:
    async with talking(answer(b"secret"), tls=certificate(tmp_path, "web.example"), resolve=resolve) as (http, server):
        url = server.url(host="web.example", scheme="https")
        for function in ("http-request", "http-stream-start"):
            failure = await http.failure(function, request(url))
            assert failure.case == "tls-error"
            assert "self-signed certificate" in failure.detail
        assert await http.case("http-upload-start", request(url, "post"), options()) == "tls-error"
    assert server.asked == []


async def test_the_name_of_the_url_is_shown_and_checked_whatever_the_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str | None] = []
    context = certificate(tmp_path, "web.example")
    context.sni_callback = lambda _sock, name, _context: shown.append(name)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
    async with talking(answer(b"secret"), tls=context, resolve=resolve) as (http, server):
        response = await http("http-request", request(server.url(host="web.example", scheme="https")))
        assert response.body == b"secret"
        other = server.url(host="other.example", scheme="https")
        assert await http.case("http-request", request(other)) == "tls-error"
    assert shown == ["web.example", "other.example"]
    assert server.asked[0].headers["host"] == f"web.example:{server.port}"


async def test_a_certificate_that_has_expired_is_a_tls_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = certificate(tmp_path, "web.example", NOW - DAY)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
    async with talking(answer(), tls=context, resolve=resolve) as (http, server):
        url = server.url(host="web.example", scheme="https")
        assert await http.case("http-request", request(url)) == "tls-error"


async def test_a_server_that_does_not_speak_tls_is_a_tls_error() -> None:
    async def plain(stream: Any) -> None:
        await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await server.hung_up(stream)

    async with talking(answer()) as (http, server):
        server.instead = plain
        assert await http.case("http-request", request(server.url(scheme="https"))) == "tls-error"


async def test_a_server_that_hangs_up_at_the_handshake_is_a_tls_error() -> None:
    async def hang_up(stream: Any) -> None:
        await stream.receive_some(1 << 16)

    async with talking(answer()) as (http, server):
        server.instead = hang_up
        assert await http.case("http-request", request(server.url(scheme="https"))) == "tls-error"


async def test_a_handshake_that_stalls_is_a_timeout() -> None:
    async with talking(answer()) as (http, server):
        server.instead = server.hung_up
        url = request(server.url(scheme="https"))
        assert await http.case("http-request-opts", url, options(connect=30)) == "timeout"
        await server.gone.wait()


async def test_a_redirect_from_https_to_http_is_blocked_where_https_only_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = certificate(tmp_path, "web.example")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
    async with serving(answer(b"plain")) as plain:
        handler = answer(b"", f"location: {plain.url()}", status="302 Found")
        allow = f"127.0.0.1:{plain.port}"
        async with talking(handler, "1.1", allow, tls=context, resolve=resolve) as (http, server):
            asked = request(server.url(host="web.example", scheme="https"))
            assert await http.case("http-request-opts", asked, options(https_only=True)) == "redirect-blocked"
            assert (await http("http-request", asked)).body == b"plain"
