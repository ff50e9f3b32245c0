"""astrid:process, commands that go on: handles, ids, logs with cursors, input, signals, ends, limits, watches."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from processes import BOTH, Processes, bash, call, case, family, gone, processes, refused, there

from astrid_host.errors import HostError
from astrid_host.hostcalls.process.shapes import ExitInfo, LogCursor

MODES = pytest.mark.parametrize("sandboxed", BOTH)
CALL = call()
START = LogCursor(None)


async def ready(pollable: Any) -> None:
    """Return when a pollable is ready."""
    token, event = trio.lowlevel.current_trio_token(), trio.Event()
    if not pollable.ready():
        pollable.when_ready(lambda: token.run_sync_soon(event.set))
        await event.wait()
    assert pollable.ready()


@MODES
async def test_a_handle_reads_what_is_new_and_tells_the_end(tmp_path: Path, sandboxed: bool) -> None:
    async with processes(tmp_path, sandboxed) as at:
        do, handle = at.functions, await at.begin("echo one; read line; echo two; exit 7", keep_stdin_open=True)
        logs, ended = do.subscribe_logs(CALL, handle), do.subscribe_exit(CALL, handle)
        await ready(logs)
        read = await do.read_logs(CALL, handle)
        assert (read.stdout, read.running, read.exit) == ("one\n", True, None)
        assert not logs.ready()
        assert not ended.ready()
        assert do.os_pid(CALL, handle) > 0
        assert await do.write_stdin(CALL, handle, b"go\n") == 3
        assert await do.wait(CALL, handle, 10_000) == ExitInfo(7, None)
        await ready(ended)
        assert (await do.wait_with_output(CALL, handle, None)).stdout == "two\n"
        assert logs.ready()  # there is nothing to read, and nothing will come
        assert (await do.read_logs(CALL, handle)).running is False
        assert case(lambda: do.os_pid(CALL, handle)) == "closed"
        assert case(lambda: do.signal(CALL, handle, "term")) == "closed"
        assert (await refused(do.write_stdin(CALL, handle, b"x"))).case == "closed"


@MODES
async def test_a_process_ends_with_its_handle(tmp_path: Path, sandboxed: bool) -> None:
    async with processes(tmp_path, sandboxed) as at:
        handle = await at.begin("trap '' INT TERM HUP; sleep 86441 & sleep 86441")
        handle.close()
        handle.close()
        await gone("sleep 86441")
        await at.emptied()


@MODES
async def test_killing_returns_the_last_output(tmp_path: Path, sandboxed: bool) -> None:
    async with processes(tmp_path, sandboxed) as at:
        handle = await at.begin("trap '' INT TERM; echo last; sleep 86442")
        await ready(at.functions.subscribe_logs(CALL, handle))
        killed = await at.functions.kill(CALL, handle)
        assert (killed.killed, killed.exit, killed.stdout) == (True, ExitInfo(None, signal.SIGKILL), "last\n")
        again = await at.functions.kill(CALL, handle)
        assert (again.killed, again.exit, again.stdout) == (False, killed.exit, "")
        assert not family("sleep 86442")


SIGNALS = {"term": "TERM", "hup": "HUP", "usr1": "USR1", "usr2": "USR2", "int": "INT"}


async def test_a_handle_that_never_reaches_its_guest_ends_its_process(tmp_path: Path) -> None:
    async with processes(tmp_path, False) as at:
        handle: Any = await at.begin("sleep 86452")
        await there("sleep 86452")
        del handle  # the call ended while it began
        await gone("sleep 86452")


async def test_signals_arrive_under_their_names(tmp_path: Path) -> None:
    async with processes(tmp_path, False) as at:
        traps = "".join(f"trap 'echo {name}' {name};" for name in SIGNALS.values())
        # On its errors bash may tell how the sleep ended.
        handle = await at.begin(f"exec 3>&2 2> /dev/null; {traps} echo ready; while :; do sleep 0.01; done")
        logs = at.functions.subscribe_logs(CALL, handle)
        await ready(logs)
        assert (await at.functions.read_logs(CALL, handle)).stdout == "ready\n"
        for name, trap in SIGNALS.items():
            at.functions.signal(CALL, handle, name)
            await ready(logs)
            assert (await at.functions.read_logs(CALL, handle)).stdout == f"{trap}\n"


async def test_a_process_can_be_stopped_and_continued(tmp_path: Path) -> None:
    async with processes(tmp_path, False) as at:
        handle = await at.begin("while read line; do echo $line; done", keep_stdin_open=True)
        do, pid = at.functions, at.functions.os_pid(CALL, handle)
        do.signal(CALL, handle, "stop")
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            await trio.sleep(0.005)
        await do.write_stdin(CALL, handle, b"x\n")
        do.signal(CALL, handle, "cont")
        await ready(do.subscribe_logs(CALL, handle))
        await do.close_stdin(CALL, handle)
        assert await do.wait(CALL, handle, None) == ExitInfo(0, None)


async def test_input_that_is_not_to_stay_open_is_closed(tmp_path: Path) -> None:
    async with processes(tmp_path, False) as at:
        handle = await at.begin("cat", stdin=b"all")
        assert (await at.functions.wait_with_output(CALL, handle, 10_000)).stdout == "all"
        handle = await at.begin("sleep 86443")
        assert (await refused(at.functions.write_stdin(CALL, handle, b"x"))).case == "closed"
        await at.functions.close_stdin(CALL, handle)


async def test_writing_is_bounded_in_size_and_time(tmp_path: Path) -> None:
    async with processes(tmp_path, False) as at:
        handle = await at.begin("sleep 86444", keep_stdin_open=True)
        assert (await refused(at.functions.write_stdin(CALL, handle, bytes((1 << 20) + 1)))).case == "too-large"
        child = handle.child
        written = await child.input.write(bytes(1 << 20), 0.05)
        assert 0 < written < 1 << 20
        assert (await refused(child.input.write(b"x", 0.05))).case == "wait-timeout"


async def test_waiting_has_the_bound_that_was_given(tmp_path: Path) -> None:
    async with processes(tmp_path, False) as at:
        do, handle = at.functions, await at.begin("sleep 86445")
        assert (await refused(do.wait(CALL, handle, 20))).case == "wait-timeout"
        assert (await refused(do.wait_with_output(CALL, handle, 0))).case == "wait-timeout"
        attached = do.attach(CALL, await at.persist("sleep 86445"))
        for wait in (do.wait, do.wait_with_output):
            assert (await refused(wait(CALL, attached, None))).case == "invalid-input"


@MODES
async def test_a_child_that_waits_for_its_reader_loses_nothing(tmp_path: Path, sandboxed: bool) -> None:
    async with processes(tmp_path, sandboxed) as at:
        script = "for i in $(seq 40000); do echo $i; done"
        process = await at.persist(script, overflow="backpressure", log_ring_bytes=4096)
        read, cursor, ended = b"", START, False
        while not ended:
            chunk = at.functions.read_since(CALL, process, "stdout", cursor, 2000)
            read, cursor, ended = read + chunk.data, chunk.next, chunk.drained_eof
            assert chunk.bytes_dropped == 0
            assert len(chunk.data) <= 2000
            await trio.sleep(0 if chunk.data else 0.002)
        assert read.split() == [b"%d" % i for i in range(1, 40_001)]


async def test_cursors_are_checked(tmp_path: Path) -> None:
    async with processes(tmp_path, False) as at:
        do, process = at.functions, await at.persist("echo out; echo err >&2; sleep 86446")
        for stream, text in {"stdout": b"out\n", "stderr": b"err\n"}.items():
            while not (chunk := do.read_since(CALL, process, stream, START, 100)).data:
                await trio.sleep(0.005)
            assert (chunk.data, chunk.drained_eof) == (text, False)
            assert do.read_since(CALL, process, stream, chunk.next, 100).data == b""
            assert do.read_since(CALL, process, stream, LogCursor("1"), 2).data == text[1:3]
        for token in ("", "5", "-1", "x", "9" * 30, "١"):
            with pytest.raises(HostError) as caught:
                do.read_since(CALL, process, "stdout", LogCursor(token), 1)
            assert caught.value.case == "invalid-input"


# Persistent ones.


@MODES
async def test_a_persistent_process_is_found_by_later_calls(tmp_path: Path, sandboxed: bool) -> None:
    async with processes(tmp_path, sandboxed) as at:
        do = at.functions
        process = await at.persist("echo begun; cat", label="my server", keep_stdin_open=True)
        later = call()
        attached = do.attach(later, process)
        attached.close()
        info = do.status(later, process)
        assert (info.id, info.label, info.phase, info.exit) == (process, "my server", "running", None)
        assert info.command == "bash -c 'echo begun; cat'"
        assert info.os_pid
        assert info.stdin_open
        assert [found.id for found in do.list_processes(later, "server")] == [process]
        assert do.list_processes(later, "other") == []
        assert [found.id for found in do.status_many(later, ["x", process])] == [process]
        await do.write_stdin_of(later, process, b"more\n")
        await do.close_stdin_of(later, process)
        assert await do.wait_of(later, process, 10_000) == ExitInfo(0, None)
        assert (await do.wait_with_output(later, attached, 1000)).stdout == "begun\nmore\n"
        info = do.status(later, process)
        assert (info.phase, info.exit, info.os_pid, info.stdin_open) == ("exited", ExitInfo(0, None), None, False)
        assert info.cpu_ms is not None
        assert info.mem_bytes_peak
        do.release_process(later, process)
        assert do.list_processes(later, None) == []


@MODES
async def test_stopping_asks_first_and_forgets(tmp_path: Path, sandboxed: bool) -> None:
    async with processes(tmp_path, sandboxed) as at:
        do = at.functions
        for script, ended in {
            "trap 'exit 5' TERM; echo x > begun; while :; do sleep 0.01; done": ExitInfo(5, None),
            "trap '' TERM; echo x > begun; while :; do sleep 86447; done": ExitInfo(None, signal.SIGKILL),
        }.items():
            process = await at.persist(script)
            await at.written("begun")
            (at.work / "begun").unlink()
            assert await do.stop(CALL, process, 100 if ended.signal else None) == ended
            assert do.status_many(CALL, [process]) == []
        assert not family("sleep 86447")


async def test_what_runs_cannot_be_released(tmp_path: Path) -> None:
    async with processes(tmp_path, False) as at:
        process = await at.persist("sleep 86448")
        assert case(lambda: at.functions.release_process(CALL, process)) == "invalid-input"


async def test_ids_mean_nothing_to_others(tmp_path: Path) -> None:
    async with processes(tmp_path, False) as at:
        do, process = at.functions, await at.persist("sleep 86449")
        assert len(process) == 52
        plain: list[Callable[[Any, str], object]] = [
            do.attach,
            do.status,
            lambda by, name: do.read_since(by, name, "stdout", START, 1),
            lambda by, name: do.signal_of(by, name, "term"),
            do.release_process,
            lambda by, name: do.watch(by, name, None),
            do.unwatch,
        ]
        waiting: list[Callable[[Any, str], Any]] = [
            lambda by, name: do.write_stdin_of(by, name, b"x"),
            do.close_stdin_of,
            do.read_logs_of,
            lambda by, name: do.wait_of(by, name, 1),
            lambda by, name: do.stop(by, name, None),
        ]
        handle = await at.begin("sleep 86449")
        for by, name in (
            (call("bob"), process),
            (call(capsule="other"), process),
            (CALL, "made-up"),
            (CALL, ""),
            (CALL, handle.child.id),
        ):
            for run in plain:
                assert case(lambda run=run, by=by, name=name: run(by, name)) == "no-such-process"  # type: ignore[misc]
            for wait in waiting:
                assert (await refused(wait(by, name))).case == "no-such-process"
            assert do.status_many(by, [name]) == []
        assert do.list_processes(call("bob"), None) == []
        assert case(lambda: do.status_many(CALL, ["x"] * 1025)) == "too-large"
        assert do.status(CALL, process).phase == "running"


@pytest.mark.parametrize("by", [call(persistent=False), call(message=None), call("anonymous")])
async def test_a_process_without_permission_or_owner_does_not_persist(tmp_path: Path, by: Any) -> None:
    async with processes(tmp_path, False) as at:
        assert (await refused(at.persist("true", by))).case == "persist-unsupported"


async def test_a_principal_has_eight_in_the_background(tmp_path: Path) -> None:
    async with processes(tmp_path, False) as at:
        handles = [await at.begin("sleep 86450") for _ in range(4)]
        kept = [await at.persist("sleep 86450", call(capsule=f"c{n}")) for n in range(4)]
        for start in (at.begin, at.persist):
            assert (await refused(start("true"))).case == "quota"
        await at.begin("true", call("bob"))
        assert (await at.run("echo fine")).stdout == "fine\n"
        await at.functions.stop(call(capsule="c0"), kept[0], 0)
        await at.functions.kill(CALL, handles[0])
        await at.begin("true")
        await at.persist("true")


async def test_the_rings_of_a_principal_have_a_bound_together(tmp_path: Path) -> None:
    async with processes(tmp_path, False) as at:
        for _ in range(8):
            await at.persist("sleep 86453", log_ring_bytes=8 << 20)
        assert (await refused(at.run("true"))).case == "quota"
        await at.run("true", call("bob"))


async def test_a_principal_has_thirty_two_that_are_remembered(tmp_path: Path) -> None:
    async with processes(tmp_path, False) as at:
        do, kept = at.functions, []
        for _ in range(32):
            kept.append(await do.spawn_persistent(CALL, bash("true")))
            await do.wait_of(CALL, kept[-1], 10_000)
        assert (await refused(at.persist("true"))).case == "registry-full"
        do.release_process(CALL, kept[0])
        await at.persist("true")


async def test_nobody_keeps_what_nobody_uses(tmp_path: Path) -> None:
    async with processes(tmp_path, False) as at:
        at.functions.watch(
            CALL, process := await at.persist("exec sleep 86451", idle_timeout_ms=100, exit_retention_ms=1), "me"
        )
        told = next_event(at, "astrid.process.v1.exited.me")
        await at.emptied()
        assert (await told)["reason"] == "reaped-ttl"
        assert case(lambda: at.functions.status(CALL, process)) == "no-such-process"


async def test_what_has_ended_is_remembered_for_a_while(tmp_path: Path) -> None:
    async with processes(tmp_path, False) as at:
        process = await at.persist("echo out", exit_retention_ms=60_000)
        await at.functions.wait_of(CALL, process, 10_000)
        attached = at.functions.attach(CALL, process)
        assert (await at.functions.wait_with_output(CALL, attached, 5000)).stdout == "out\n"
        assert at.functions.status(CALL, process).phase == "exited"


def next_event(at: Processes, topic: str) -> Any:
    """What is published next on a topic, when it is."""
    event = trio.Event()
    found: dict[str, Any] = {}

    def heard(published: Any) -> None:
        found.update(data=published.data, principal=published.principal, source=published.source_id)
        event.set()

    at.bus.observe(topic, heard)

    async def wait() -> Any:
        await event.wait()
        assert found["principal"] == "alice"
        assert found["source"] == "source of shell"  # the topic is of the capsule's choice
        return found["data"]

    return wait()


async def test_a_watched_process_is_told_of_on_the_bus(tmp_path: Path) -> None:
    async with processes(tmp_path, False) as at:
        do = at.functions
        process = await at.persist("read line; echo $line; exit 3", label="job", keep_stdin_open=True)
        do.watch(CALL, process, None)
        log, ended = (next_event(at, f"astrid.process.v1.{what}.{process}") for what in ("log-ready", "exited"))
        await do.write_stdin_of(CALL, process, b"x\n")
        assert await log == {"id": process, "label": "job"}
        how = {"exit_code": 3, "signal": None}
        assert await ended == {"id": process, "label": "job", "reason": "self-exit", "exit": how}
        late = next_event(at, "astrid.process.v1.exited.late.one")
        do.watch(CALL, process, "late.one")
        assert (await late)["exit"] == how
        do.unwatch(CALL, process)
        for suffix in ("", "A", "a..b", ".a", "a.b.c.d.e", "*", "a b", "x" * 300):
            with pytest.raises(HostError) as caught:
                do.watch(CALL, process, suffix)
            assert caught.value.case == "invalid-input"


async def test_input_that_was_taken_is_told_of(tmp_path: Path) -> None:
    async with processes(tmp_path, False) as at:
        process = await at.persist("until [ -e go ]; do sleep 0.01; done; cat > /dev/null", stdin=bytes(1 << 20))
        told = next_event(at, f"astrid.process.v1.stdin-drained.{process}")
        at.functions.watch(CALL, process, None)
        (at.work / "go").write_text("x\n")
        assert (await told)["id"] == process
