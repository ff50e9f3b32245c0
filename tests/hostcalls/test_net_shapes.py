"""The host functions of astrid:net and astrid:io beside their WIT: nothing missing, parameters as declared, each audited."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from astrid_host.hostcalls import HostFunction
from astrid_host.hostcalls.io import Errors, Poll, Streams
from astrid_host.hostcalls.net import interfaces
from astrid_host.stores.secrets import SecretStore
from astrid_host.wit import Packages
from astrid_host.wit.types import Function

NET = interfaces(Any, Any)  # type: ignore[arg-type]
MADE = {
    "astrid:net/host@1.0.0": NET,
    "astrid:io/poll@1.0.0": (Poll(Any, Any),),  # type: ignore[arg-type]
    "astrid:io/streams@1.0.0": (Streams(),),
    "astrid:io/error@1.0.0": (Errors(),),
}
PACKAGES = Packages(Path(__file__).parents[2] / "wit")


def declared(interface: str) -> dict[str, Function]:
    found = PACKAGES.interface(interface)
    assert found is not None
    return dict(found.functions)


def provided(interface: str) -> dict[str, HostFunction]:
    assert all(made.wit == (interface,) for made in MADE[interface])
    return {name: function for made in MADE[interface] for name, function in made.functions().items()}


@pytest.mark.parametrize("interface", MADE)
def test_nothing_is_missing_and_nothing_twice(interface: str) -> None:
    assert sorted(provided(interface)) == sorted(declared(interface))
    assert sum(len(made.functions()) for made in MADE[interface]) == len(declared(interface))


@pytest.mark.parametrize("interface", MADE)
def test_parameters_are_as_declared(interface: str) -> None:
    """`self` has a name of its own here, and `len` is one of Python's."""
    for name, function in provided(interface).items():
        given = list(inspect.signature(function.run).parameters)[1:]
        wanted = [parameter.name.replace("-", "_") for parameter in declared(interface)[name].params]
        if wanted and wanted[0] == "self":
            del given[0], wanted[0]
        assert given == ["length" if parameter == "len" else parameter for parameter in wanted], name


def test_each_function_of_net_names_its_target_for_the_audit() -> None:
    assert all(function.audited is not None for function in provided("astrid:net/host@1.0.0").values())


HOSTS = {
    "connect-tcp": (),
    "bind-tcp": (),
    "udp-bind": (),
    "[method]udp-socket.send-to": (None, b""),
    "[method]udp-socket.connect": (None,),
}


@pytest.mark.parametrize("name", [*HOSTS, "lookup-host"])
def test_hosts_are_named_whole_and_as_they_are_so_that_secrets_in_them_are_found(name: str) -> None:
    secrets, secret = SecretStore(None), "S3cr3t-" * 5
    secrets.hide(secret)
    audited = provided("astrid:net/host@1.0.0")[name].audited
    assert audited is not None
    for before in (0, 230, 250, 8_000, 8_180):
        host = "x" * before + secret
        target = audited(host) if name == "lookup-host" else audited(*HOSTS[name], host, 80)
        assert "s3c" not in secrets.redacted(target).lower(), before


def test_only_what_may_wait_does() -> None:
    """A function that waits is a task; options and addresses are not worth one."""
    waiting = {
        name.rpartition(".")[2] for name, function in provided("astrid:net/host@1.0.0").items() if function.waits
    }
    assert waiting == {
        "accept", "bind-tcp", "bind-unix", "connect", "connect-tcp", "lookup-host", "peek", "poll-accept", "read",
        "read-bytes", "recv", "recv-from", "send", "send-to", "shutdown", "udp-bind", "write", "write-bytes",
    }  # fmt: skip
