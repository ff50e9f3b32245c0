"""What children in the sandbox reach: no network that was not granted, nobody's secrets, and none of the host's own folders."""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import trio
from processes import NEEDS_SANDBOX, PYTHON, Processes, bash, call, processes, refused, request

from astrid_host.abi import Variant
from astrid_host.bus import Bus
from astrid_host.gates.process import may_use_network
from astrid_host.hostcalls.io.background import Background
from astrid_host.hostcalls.paths import Roots
from astrid_host.hostcalls.process import Process, Tracker, sandbox
from astrid_host.hostcalls.process.hiding import hidden_from, sockets

pytestmark = NEEDS_SANDBOX

CONNECT = """
import socket, sys
family, where = (socket.AF_INET, ("127.0.0.1", int(sys.argv[2]))) if sys.argv[1] == "tcp" else (socket.AF_UNIX, sys.argv[2])
with socket.socket(family) as made:
    made.settimeout(5)
    made.connect(where.replace("@", "\\0") if isinstance(where, str) else where)
"""


def online(*rows: str) -> Any:
    """A call of a capsule whose manifest has these rows of `net`."""
    made = call()
    manifest = made.capsule.manifest
    capabilities = msgspec.structs.replace(manifest.capabilities, net=rows)
    made.capsule.manifest = msgspec.structs.replace(manifest, capabilities=capabilities)
    return made


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The host's user has this home, and no other."""
    made = tmp_path / "people" / "me"
    (made / ".ssh").mkdir(parents=True)
    (made / ".ssh" / "key").write_text("secret\n")
    (made / ".netrc").write_text("secret\n")
    monkeypatch.setenv("HOME", str(made))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda _: SimpleNamespace(pw_dir=str(made)))
    return made


# The network.


@pytest.mark.parametrize(
    ("rows", "granted"), [((), False), (("example.com",), False), (("*",), True), (("a.example", "*"), True)]
)
def test_a_network_takes_the_row_for_all_hosts(rows: tuple[str, ...], granted: bool) -> None:
    denial = may_use_network(online(*rows).capsule.manifest)
    assert (denial is None) is granted
    if denial is not None:
        assert "[capabilities] net = " + json.dumps([*rows, "*"]) in denial.detail


@pytest.mark.parametrize("rows", [(), ("example.com",), ("*",)])
async def test_only_a_granted_network_leads_to_the_hosts_servers(tmp_path: Path, rows: tuple[str, ...]) -> None:
    name = f"@astrid-test-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(name.replace("@", "\0"))
        abstract.listen()
        async with processes(tmp_path, True) as at:
            for kind, where in (("tcp", str(server.getsockname()[1])), ("unix", name)):
                ended = await at.functions.spawn(online(*rows), request(PYTHON, "-c", CONNECT, kind, where))
                assert (ended.exit.exit_code == 0) is ("*" in rows), ended.stderr


async def test_without_a_network_its_own_loopback_is_there(tmp_path: Path) -> None:
    program = (
        "import socket;s=socket.create_server(('127.0.0.1',0));socket.create_connection(s.getsockname());print('met')"
    )
    async with processes(tmp_path, True) as at:
        assert (await at.functions.spawn(call(), request(PYTHON, "-c", program))).stdout == "met\n"


async def test_how_to_grant_a_network_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "astrid_host")
    async with processes(tmp_path, True) as at:
        for by in (call(), call(), online("*"), call(capsule="other")):
            await at.run("true", by)
    said = [record.getMessage() for record in caplog.records if "net = [" in record.getMessage()]
    assert [text.partition("'")[2].partition("'")[0] for text in said] == ["shell", "other"]


async def test_where_no_network_can_be_made_it_has_the_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = sandbox.SandboxState(True, "so", shares_network=True)
    for module in ("sandbox", "launching"):
        monkeypatch.setattr(f"astrid_host.hostcalls.process.{module}.sandbox_state", lambda: state)
    with socket.create_server(("127.0.0.1", 0)) as server:
        async with processes(tmp_path, True) as at:
            program = request(PYTHON, "-c", CONNECT, "tcp", str(server.getsockname()[1]))
            assert (await at.functions.spawn(call(), program)).exit.exit_code == 0


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A socket of somebody else's, at a place that children see: not in /tmp."""
    path = f"/var/tmp/astrid-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.bind(path)
        except OSError as error:
            pytest.skip(f"no socket can be made in /var/tmp: {error}")
        server.listen()
        yield path
        os.unlink(path)


async def test_sockets_of_others_are_covered(tmp_path: Path, door: str) -> None:
    assert door in sockets()
    async with processes(tmp_path, True) as at:
        with socket.socket(socket.AF_UNIX) as own:
            own.bind(str(at.work / "own"))
            own.listen()
            ended = await at.functions.spawn(call(), request(PYTHON, "-c", CONNECT, "unix", str(at.work / "own")))
            assert ended.exit.exit_code == 0, "those of the workspace are the workspace"
        ended = await at.functions.spawn(online("*"), request(PYTHON, "-c", CONNECT, "unix", door))
        assert ended.exit.exit_code == 1


# Homes, and the host's own folders.


@asynccontextmanager
async def in_workspace(workspace: Path, state: Path) -> AsyncIterator[Processes]:
    """Child processes of a workspace that holds the state folder, with a database in it."""
    roots, bus = Roots(workspace, state), Bus()
    (state / "host.db").write_text("database\n")
    async with trio.open_nursery() as nursery:
        tell = trio.lowlevel.current_trio_token().run_sync_soon
        scheduler: Any = SimpleNamespace(
            lock=bus.lock, wake_loop=lambda: None, run_or_wake=lambda: None, call_soon=tell, closed=False
        )
        tracker = Tracker(bus, Background(scheduler, nursery), roots, state, True)
        yield Processes(Process(tracker), tracker, workspace, bus, nursery)
        nursery.cancel_scope.cancel()
    tracker.close()
    roots.close()


async def test_a_home_is_empty_but_for_the_workspace_and_programs(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (".cargo/bin", "tools", "private"):
        (home / folder).mkdir(parents=True)
        (home / folder / "file").touch()
    monkeypatch.setenv("PATH", f"{home}/tools:{home}:{os.environ['PATH']}")
    async with processes(home / "project", True) as at:
        script = f"cd {home}; find . -type f | sort; for place in . tools; do touch $place/mine 2> /dev/null; done; ls -A; pwd"
        found = (await at.run(script)).stdout.split()
        assert found[:2] == ["./.cargo/bin/file", "./tools/file"]
        assert sorted(found[2:-1]) == [".cargo", "project", "tools"]
        (at.work / "bin").mkdir()
        monkeypatch.setenv("PATH", f"{at.work}/bin:{os.environ['PATH']}")
        assert (await at.run("touch bin/mine")).exit.exit_code == 0, "programs of the workspace are the workspace"


async def test_in_a_home_as_workspace_secrets_are_empty(home: Path) -> None:
    async with in_workspace(home, home / ".local/share/astrid-host") as at:
        read = "cat .ssh/* .netrc .local/share/astrid-host/host.db; ls -A .ssh .local/share/astrid-host"
        write = "echo x > .ssh/authorized_keys; mv .ssh ssh; mv .netrc netrc; ls -d ssh netrc"
        ended = await at.functions.spawn(call(), bash(f"{read}; {write}"))
        assert ended.stdout == ".local/share/astrid-host:\nhomes\n\n.ssh:\n"
    assert (home / ".ssh" / "key").read_text() == "secret\n"
    assert sorted(os.listdir(home / ".ssh")) == ["key"]


MOVES = """
mv .cache old; mv .local old; mv .local/share old; rm -rf .cache .local; mkdir -p .cache/astrid-host/modules
echo poison > .cache/astrid-host/modules/x; echo poison > .local/share/astrid-host/host.db
mv -T .cache .local; ln -s x .cache; python3 -c 'import os; os.rename(".cache", ".else")'; touch fine
"""


async def test_none_of_the_hosts_folders_can_be_replaced(home: Path) -> None:
    state, cache = home / ".local/share/astrid-host", home / ".cache/astrid-host"
    (cache / "modules").mkdir(parents=True)
    (cache / "modules" / "one").write_text("compiled")
    async with in_workspace(home, state) as at:
        places = [*state.parents, state, cache.parent, cache, cache / "modules"]
        before = [os.stat(place).st_ino for place in places]
        await at.functions.spawn(call(), bash(MOVES))
        assert [os.stat(place).st_ino for place in places] == before
    assert (home / "fine").exists()
    assert (state / "host.db").read_text() == "database\n"
    assert os.listdir(cache / "modules") == ["one"]


async def test_a_link_of_the_workspace_on_the_way_to_them_is_refused(home: Path) -> None:
    (home / "elsewhere").mkdir()
    (home / ".cache").symlink_to("elsewhere")
    async with in_workspace(home, home / "state") as at:
        error = await refused(at.functions.spawn(call(), bash("true")))
        assert error.case == "unknown"
        assert f"the link {home}/.cache, which is in the workspace" in (error.detail or "")


def test_what_daemons_have_for_a_home_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for place in ("/", "/usr/sbin", "/bin", "/nonexistent", "relative"):
        monkeypatch.setenv("HOME", place)
        monkeypatch.setattr("pwd.getpwuid", lambda _, place=place: SimpleNamespace(pw_dir=place))
        assert set(hidden_from(str(tmp_path), []).folders) <= {"/home", "/root", "/etc/ssl/private"}


async def test_keys_and_passwords_of_the_system_are_empty(tmp_path: Path) -> None:
    async with processes(tmp_path, True) as at:
        assert (
            await at.run("cat /etc/shadow /etc/gshadow /etc/ssh/ssh_host_*_key; ls -A /etc/ssl/private")
        ).stdout == ""


async def test_a_file_that_came_to_stand_elsewhere_is_noticed(tmp_path: Path) -> None:
    async with processes(tmp_path, True) as at:
        bin_folder = at.work / "bin"
        bin_folder.mkdir()
        (bin_folder / "true").touch()
        start = at.tracker._spawner._start

        def swapping(command: Any, folder: Any, grants: Any) -> Any:
            bin_folder.rename(at.work / "was")
            bin_folder.symlink_to(os.path.relpath("/usr/bin", at.work))
            return start(command, folder, grants)

        at.tracker._spawner._start = swapping  # type: ignore[method-assign]
        place = SimpleNamespace(content=b"#!/bin/sh\n", placement=Variant("fixed-path", str(bin_folder / "true")))
        error = await refused(at.run("true", file_injections=[place]))
        assert (error.case, error.payload) == ("unknown", "a file could not be put in place: it was replaced meanwhile")


async def test_a_file_may_have_a_name_that_the_kernel_writes_otherwise(tmp_path: Path) -> None:
    async with processes(tmp_path, True) as at:
        place = SimpleNamespace(content=b"given", placement=Variant("fixed-path", "/run/a b\\c\td"))
        assert (await at.run("cat /run/a*", file_injections=[place])).stdout == "given"
