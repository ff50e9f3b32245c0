"""The airlock: which addresses are public, what a name leads to, and what the operator allows."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from ipaddress import IPv4Network
from typing import Any

import pytest
import trio
import trio.testing

from astrid_host.hostcalls import addresses
from astrid_host.hostcalls.addresses import (
    AddressRefused,
    Airlock,
    NameUnresolved,
    asked_for,
    is_public,
    plain_host,
    shown,
)

PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "93.184.216.34",
    "100.63.255.255",
    "100.128.0.0",
    "172.15.255.255",
    "172.32.0.1",
    "192.167.1.1",
    "168.63.129.17",
    "223.255.255.255",
    "2606:4700:4700::1111",
    "2a00:1450:4001:81b::200e",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
]
REFUSED = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.0.1",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.1.1.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::7f00:1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:a9fe:a9fe",
    "::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::808:808",
    "100::1",
    "2001::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:808:808::",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "2606:4700:4700::1111%eth0",
    "fec0::1",
    "ff02::1",
    "localhost",
    "127.1",
    "",
]


@pytest.mark.parametrize("address", PUBLIC)
async def test_a_public_address_passes(address: str) -> None:
    assert is_public(address)
    assert await Airlock().admit(address, 80, "web") == [address]


@pytest.mark.parametrize("address", REFUSED)
def test_any_other_address_is_refused(address: str) -> None:
    assert not is_public(address)


def knows(**table: Sequence[str]) -> Airlock:
    async def resolve(name: str, port: int) -> Sequence[str]:
        return table[name]

    return Airlock(["box:8080", "10.0.0.7:80", "[fd00::7]:443", "LOCALHOST:1"], resolve)


async def test_a_name_gives_the_addresses_that_were_checked() -> None:
    airlock = knows(web=["8.8.8.8", "2606:4700:4700::1111", "8.8.8.8"])
    assert await airlock.admit("WEB.", 443, "web") == ["8.8.8.8", "2606:4700:4700::1111"]


async def test_one_private_address_of_a_name_spoils_it() -> None:
    with pytest.raises(AddressRefused, match=r"leads to 192\.168\.0\.1.*--allow-local web:443"):
        await knows(web=["8.8.8.8", "192.168.0.1"]).admit("web", 443, "web")


async def test_the_operator_allows_a_name_whatever_it_leads_to_at_one_port() -> None:
    airlock = knows(box=["192.168.0.9", "8.8.8.8"], localhost=["::1", "127.0.0.1"])
    assert await airlock.admit("Box", 8080, "web") == ["192.168.0.9", "8.8.8.8"]
    assert await airlock.admit("localhost", 1, "web") == ["::1", "127.0.0.1"]
    for host, port in (("box", 80), ("192.168.0.9", 8080), ("localhost", 2)):
        with pytest.raises(AddressRefused):
            await airlock.admit(host, port, "web")


async def test_the_operator_allows_an_address_whatever_leads_to_it() -> None:
    airlock = knows(inside=["10.0.0.7"], both=["10.0.0.7", "10.0.0.8"])
    for host in ("10.0.0.7", "inside", "[::ffff:10.0.0.7]"):
        await airlock.admit(host, 80, "web")
    for host in ("[fd00::7]", "fd00:0::0007"):
        await airlock.admit(host, 443, "web")
    for host, port in (("10.0.0.7", 81), ("both", 80), ("10.0.0.8", 80), ("fd00::7", 80)):
        with pytest.raises(AddressRefused):
            await airlock.admit(host, port, "web")


@pytest.mark.parametrize(
    "row",
    ["", "localhost", "localhost:", "localhost:x", "localhost:0", "localhost:65536", "::1:80", "*:80", "http://a:80"],
)
def test_what_the_operator_allows_has_a_host_and_a_port(row: str) -> None:
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        Airlock([row])


async def test_a_name_without_an_address_is_unresolved() -> None:
    async def unknown(name: str, port: int) -> Sequence[str]:
        raise OSError("Name or service not known")

    with pytest.raises(NameUnresolved, match="Name or service not known"):
        await Airlock(resolve=unknown).admit("nowhere.example", 80, "web")
    with pytest.raises(NameUnresolved, match="no address"):
        await knows(nowhere=[]).admit("nowhere", 80, "web")


@pytest.mark.parametrize("host", ["", ".", "a\x00b", "a b", "ü.example", "x" * 254])
async def test_what_is_no_name_is_not_looked_up(host: str) -> None:
    with pytest.raises(NameUnresolved):
        await knows().admit(host, 80, "web")


async def test_a_resolver_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(name: str, port: int) -> Sequence[str]:
        await trio.sleep_forever()
        raise AssertionError

    monkeypatch.setattr(addresses, "RESOLVE_S", 0.02)
    with pytest.raises(NameUnresolved, match="did not answer"):
        await Airlock(resolve=never).admit("slow.example", 80, "web")


async def test_the_systems_resolver_reads_odd_spellings_and_they_are_refused() -> None:
    for host in ("localhost", "127.1", "2130706433", "0x7f000001", "0177.0.0.1"):
        with pytest.raises(AddressRefused):
            await Airlock().admit(host, 80, "web")


def test_hosts_are_compared_and_shown_in_one_spelling() -> None:
    assert plain_host("[::1]") == "::1"
    assert plain_host("Example.ORG.") == "example.org"
    assert shown("::1", 80) == "[::1]:80"
    assert shown("a", 80) == "a:80"


def test_for_the_audit_a_host_is_named_as_a_guest_spelled_it() -> None:
    assert asked_for("Example.ORG.", 80) == "Example.ORG.:80"
    assert asked_for("::1", 80) == asked_for("[::1]", 80) == "[::1]:80"
    assert asked_for("x" * 9_000, 80) == "x" * 9_000 + ":80"


async def test_an_address_of_this_machine_is_refused_however_public(monkeypatch: pytest.MonkeyPatch) -> None:
    # Few machines have a public address: loopback plays one.
    monkeypatch.setattr(addresses, "_REFUSED_V4", (IPv4Network("10.0.0.0/8"),))
    for host in ("127.0.0.1", "[::ffff:127.0.0.1]", "me.example"):
        with pytest.raises(AddressRefused, match=r"an address of this machine.*--allow-local"):
            await knows(**{"me.example": ["8.8.8.8", "127.0.0.1"]}).admit(host, 80, "web")
    assert await Airlock(["127.0.0.1:80"]).admit("127.0.0.1", 80, "web") == ["127.0.0.1"]


async def test_a_system_that_lets_anything_be_bound_does_not_take_all_addresses_for_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(addresses, "_is_here", lambda _address: True)
    assert await Airlock().admit("8.8.8.8", 80, "web") == ["8.8.8.8"]


async def test_of_very_many_addresses_of_a_name_some_are_taken() -> None:
    many = [f"8.8.{i // 250}.{i % 250 + 1}" for i in range(2_000)]
    assert await knows(many=many).admit("many", 80, "web") == many[:32]


async def test_a_capsule_whose_names_are_never_answered_for_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    answered, under_way = threading.Event(), 0
    lock = threading.Lock()

    def getaddrinfo(name: str, port: int, **_: Any) -> list[Any]:
        nonlocal under_way
        if name.startswith("slow"):
            with lock:
                under_way += 1
            answered.wait(10)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("8.8.8.8", port))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    airlock = Airlock()

    async def ask(number: int) -> None:
        await airlock.admit(f"slow{number}.example", 80, "slow")

    try:
        async with trio.open_nursery() as nursery:
            for number in range(40):
                nursery.start_soon(ask, number)
            with trio.fail_after(5):
                while under_way < 4:
                    await trio.sleep(0.001)
                for number in range(20):
                    assert await airlock.admit(f"{number}.example", 80, "other") == ["8.8.8.8"]
            nursery.cancel_scope.cancel()
        # What was abandoned goes on, and keeps its places.
        with trio.move_on_after(0.05):
            await ask(41)
        assert under_way == 4
    finally:
        answered.set()
    with trio.fail_after(5):
        await ask(42)
