"""astrid:process, commands that run to their end: what they get, what comes back, what bounds them."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from processes import BOTH, PYTHON, SANDBOX, bash, call, family, gone, processes, refused, request

from astrid_host.abi import Variant
from astrid_host.hostcalls.process.shapes import ExitInfo

MODES = pytest.mark.parametrize("sandboxed", BOTH)
PLAIN_ONLY = pytest.mark.parametrize("sandboxed", [False])
SANDBOX_ONLY = pytest.mark.parametrize("sandboxed", [SANDBOX])


async def test_it_has_every_function_of_the_interface(tmp_path: Path) -> None:
    async with processes(tmp_path, False) as at:
        functions = at.functions.functions()
        by_id = {"read-logs", "read-since", "write-stdin", "close-stdin", "signal", "wait", "stop", "release-process"}
        of_all = {"spawn", "spawn-background", "spawn-persistent", "attach", "list-processes", "status", "status-many"}
        methods = {"read-logs", "write-stdin", "close-stdin", "signal", "kill", "wait", "wait-with-output", "os-pid"}
        pollables = {"subscribe-exit", "subscribe-logs"}
        expected = by_id | of_all | {"watch", "unwatch"} | {f"[method]process-handle.{m}" for m in methods | pollables}
        assert set(functions) == expected
        assert all(function.audited is not None for function in functions.values())


@MODES
async def test_a_command_returns_what_it_wrote_and_how_it_ended(tmp_path: Path, sandboxed: bool) -> None:
    async with processes(tmp_path, sandboxed) as at:
        result = await at.run("echo out; echo err >&2; exit 3")
        assert (result.stdout, result.stderr, result.exit) == ("out\n", "err\n", ExitInfo(3, None))
        assert (await at.functions.spawn(call(), request("true"))).exit == ExitInfo(0, None)
        assert (await at.run("kill -9 $$")).exit == ExitInfo(None, signal.SIGKILL)
        assert (await at.run("exit 137")).exit == ExitInfo(137, None)
        assert (await at.run(r"printf '\xff'")).stdout == "\ufffd"


@MODES
async def test_its_input_is_what_the_request_says_and_never_the_hosts(tmp_path: Path, sandboxed: bool) -> None:
    async with processes(tmp_path, sandboxed) as at:
        assert (await at.functions.spawn(call(), request("cat", stdin=b"given"))).stdout == "given"
        assert (await at.functions.spawn(call(), request("cat"))).stdout == ""
        big = b"x" * (1 << 20)
        assert (await at.functions.spawn(call(), request("cat", stdin=big))).stdout == big.decode()
        assert (await at.run("exec true", stdin=big)).exit == ExitInfo(0, None)


@MODES
async def test_it_gets_no_descriptors_variables_or_ignored_signals(tmp_path: Path, sandboxed: bool) -> None:
    async with processes(tmp_path, sandboxed) as at:
        found = await at.functions.spawn(call(), request(PYTHON, "-c", "import os;print(os.listdir('/proc/self/fd'))"))
        assert found.stdout == "['0', '1', '2', '3']\n"  # 3 is the folder that is being listed
        variables = (await at.run("env | cut -d= -f1 | sort | tr '\\n' ' '", env=[("MINE", "1")])).stdout.split()
        passed = {"PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ"}
        of_bash = {"_", "PWD", "SHLVL", "OLDPWD"}
        assert set(variables) - passed - of_bash == {"HOME", "MINE"}
        masks = (await at.run("grep -E 'SigIgn|SigBlk' /proc/self/status")).stdout.split()[1::2]
        # Signals 32 and 33 are the C library's own; below `make` they come ignored, and nobody can set them.
        assert [int(mask, 16) & ~(0b11 << 31) for mask in masks] == [0, 0]


@MODES
async def test_it_is_never_run_through_a_shell(tmp_path: Path, sandboxed: bool) -> None:
    async with processes(tmp_path, sandboxed) as at:
        line = ["-c", "import sys;print(sys.argv[1:])", "$HOME; `id` * ~"]
        assert (await at.functions.spawn(call(), request(PYTHON, *line))).stdout == "['$HOME; `id` * ~']\n"


@MODES
async def test_each_child_leads_a_session_and_a_group_of_its_own(tmp_path: Path, sandboxed: bool) -> None:
    async with processes(tmp_path, sandboxed) as at:
        script = "import os;print(os.getpid() == os.getsid(0) == os.getpgid(0))"
        assert (await at.functions.spawn(call(), request(PYTHON, "-c", script))).stdout == "True\n"


@MODES
async def test_a_working_folder_is_of_the_workspace_or_the_home(tmp_path: Path, sandboxed: bool) -> None:
    async with processes(tmp_path, sandboxed) as at:
        (at.work / "a" / "b").mkdir(parents=True)
        (at.work / "to-b").symlink_to("a/b")
        for cwd, folder in {None: "", "a": "a", "cwd://a/b": "a/b", "./a//b": "a/b", "to-b": "a/b"}.items():
            assert (await at.run("pwd", cwd=cwd)).stdout == f"{at.work / folder}\n"
        assert (await at.run("pwd; echo $HOME", cwd="home://.config")).stdout.split() == [
            str(tmp_path / "state/homes/alice/.config"),
            str(tmp_path / "state/homes/alice"),
        ]
        assert (await at.run("echo $HOME", env=[("HOME", "/x")])).stdout == "/x\n"


@PLAIN_ONLY
@pytest.mark.parametrize(
    ("cwd", "error"),
    [
        ("/", "boundary-escape"),
        ("/etc", "boundary-escape"),
        ("..", "boundary-escape"),
        ("a/../..", "boundary-escape"),
        ("home://..", "boundary-escape"),
        ("out", "boundary-escape"),
        ("missing", "invalid-input"),
        ("file", "invalid-input"),
        ("a\0", "invalid-input"),
    ],
)
async def test_no_other_folder_is(tmp_path: Path, sandboxed: bool, cwd: str, error: str) -> None:
    async with processes(tmp_path, sandboxed) as at:
        (at.work / "out").symlink_to(tmp_path)
        (at.work / "file").touch()
        assert (await refused(at.run("true", cwd=cwd))).case == error
        assert not at.tracker.children


@MODES
async def test_a_folder_that_is_replaced_meanwhile_is_not_entered(tmp_path: Path, sandboxed: bool) -> None:
    async with processes(tmp_path, sandboxed) as at:
        (at.work / "a").mkdir()
        start = at.tracker._spawner._start

        def swapping(command: Any, folder: Any, grants: Any) -> Any:
            (at.work / "a").rename(at.work / "b")
            (at.work / "a").symlink_to("/etc")
            return start(command, folder, grants)

        at.tracker._spawner._start = swapping  # type: ignore[method-assign]
        assert (await refused(at.run("pwd", cwd="a"))).case == "invalid-input"


@MODES
async def test_what_cannot_be_run_says_why(tmp_path: Path, sandboxed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    async with processes(tmp_path, sandboxed) as at:
        error = await refused(at.functions.spawn(call(), request("missing-program")))
        assert (error.case, error.payload) == ("unknown", "missing-program cannot be run: No such file or directory")
        assert not at.tracker.children


@PLAIN_ONLY
async def test_more_arguments_than_the_system_takes_are_too_large(tmp_path: Path, sandboxed: bool) -> None:
    async with processes(tmp_path, sandboxed) as at:
        error = await refused(at.functions.spawn(call(), request("true", "x" * 500_000)))
        assert error.case == "too-large"


@PLAIN_ONLY
async def test_a_command_without_a_row_is_denied_before_anything_else(tmp_path: Path, sandboxed: bool) -> None:
    async with processes(tmp_path, sandboxed) as at:
        functions, nobody = at.functions, call(rows=())
        for start in (functions.spawn, functions.spawn_background, functions.spawn_persistent):
            assert (await refused(start(nobody, bash("true", cwd="/")))).case == "capability-denied"


@MODES
async def test_a_flood_costs_a_ring_and_no_more(tmp_path: Path, sandboxed: bool) -> None:
    async with processes(tmp_path, sandboxed) as at:
        script = "head -c 200000000 /dev/zero | tr '\\0' x; echo end"
        result = await at.run(script, log_ring_bytes=65_536)
        first, _, rest = result.stdout.partition("\n")
        assert first == f"[{200_000_004 - 65_536} bytes were dropped]"
        assert len(rest) == 65_536
        assert rest.endswith("xend\n")


@MODES
async def test_a_child_that_closes_its_output_but_stays_is_waited_for(tmp_path: Path, sandboxed: bool) -> None:
    async with processes(tmp_path, sandboxed) as at:
        result = await at.run("exec >&- 2>&-; sleep 0.1; echo done > ended; exit 4")
        assert result.exit == ExitInfo(4, None)
        assert (at.work / "ended").read_text() == "done\n"


@MODES
async def test_what_a_command_leaves_running_ends_with_it(tmp_path: Path, sandboxed: bool) -> None:
    async with processes(tmp_path, sandboxed) as at:
        with trio.fail_after(10):
            result = await at.run("sleep 86431 & setsid sleep 86431 & (setsid setsid sleep 86431 &) ; echo started")
        assert result.stdout == "started\n"
        assert not family("sleep 86431")


@MODES
async def test_its_life_is_as_long_as_was_asked_for(tmp_path: Path, sandboxed: bool) -> None:
    async with processes(tmp_path, sandboxed) as at:
        with trio.fail_after(4):
            assert (await at.run("exec sleep 86432", max_lifetime_ms=100)).exit == ExitInfo(None, signal.SIGTERM)
        assert not family("sleep 86432")


LIMITED = {
    "max_open_files": (16, "ulimit -n", "16\n", 0),
    "max_memory_bytes": (512 << 20, "ulimit -v", f"{512 << 10}\n", 0),
    "max_cpu_secs": (1, "while :; do :; done", "", signal.SIGXCPU),
}


@PLAIN_ONLY
@pytest.mark.parametrize("name", LIMITED)
async def test_limits_hold(tmp_path: Path, sandboxed: bool, name: str) -> None:
    most, script, stdout, number = LIMITED[name]
    names = ("max_memory_bytes", "max_cpu_secs", "max_pids", "max_open_files")
    async with processes(tmp_path, sandboxed) as at:
        result = await at.run(script, limits=SimpleNamespace(**{**dict.fromkeys(names), name: most}))
        assert result.stdout == stdout
        assert (result.exit.signal or 0) == number


@PLAIN_ONLY
async def test_processes_are_counted_beside_those_of_the_user(tmp_path: Path, sandboxed: bool) -> None:
    limits = SimpleNamespace(max_memory_bytes=None, max_cpu_secs=None, max_pids=5, max_open_files=None)
    async with processes(tmp_path, sandboxed) as at:
        most = int((await at.run("ulimit -u", limits=limits)).stdout)
        assert most >= 6  # the supervisor is one of them, so is this test


def injected(case: str, where: str, content: bytes) -> Any:
    return SimpleNamespace(content=content, placement=Variant(case, where))


@MODES
async def test_a_file_stands_where_a_variable_says_until_the_command_ends(tmp_path: Path, sandboxed: bool) -> None:
    async with processes(tmp_path, sandboxed) as at:
        files = [injected("env-pointer", name, name.encode()) for name in ("ONE", "TWO")]
        result = await at.run("cat $ONE $TWO; echo; stat -c %a $ONE; echo $ONE", file_injections=files)
        content, mode, path = result.stdout.split()
        assert (content, mode) == ("ONETWO", "400")
        assert not os.path.exists(os.path.dirname(path))


@SANDBOX_ONLY
async def test_a_file_stands_at_a_path_for_its_child_alone(tmp_path: Path, sandboxed: bool) -> None:
    before = Path("/etc/passwd").read_bytes()
    async with processes(tmp_path, sandboxed) as at:
        files = [injected("fixed-path", "/etc/passwd", b"mine"), injected("fixed-path", "/run/x/y", b"new")]
        assert (await at.run("cat /etc/passwd /run/x/y", file_injections=files)).stdout == "minenew"
        (at.work / "mine").touch()
        (at.work / "link").symlink_to("/usr/bin/true")
        files = [injected("fixed-path", str(at.work / "mine"), b"here")]
        assert (await at.run("cat mine", file_injections=files)).stdout == "here"
        (at.work / "folder").mkdir()
        (at.work / "folder" / "file").touch()
        (at.work / "to-folder").symlink_to("folder")
        refused_paths = [
            *("/etc/no/such/file", "/etc/ld.so.cache", "/etc/ld.so.preload", "/etc/profile", "/etc/bash.bashrc"),
            *("/usr/bin/true", "/proc/version", "/run", str(at.work), str(at.work / "folder")),
            *(str(at.work / "to-folder" / "file"), str(tmp_path / "state" / "x")),
        ]
        for path in (*refused_paths, os.path.realpath(os.__file__), str(at.work / "link"), "/tmp/missing"):
            files = [injected("fixed-path", path, b"")]
            assert (await refused(at.run("true", file_injections=files))).case == "invalid-input"
    assert Path("/etc/passwd").read_bytes() == before


async def test_the_audit_names_the_files_that_are_replaced_and_cuts_no_secret_in_two(tmp_path: Path) -> None:
    async with processes(tmp_path, False) as at:
        target = at.functions.functions()["spawn"].audited
        assert target is not None
        files = [injected("fixed-path", "/etc/passwd", b""), injected("env-pointer", "FILE", b"")]
        assert target(request("git", "status")) == "git status"
        assert target(request("git", "log", file_injections=files)) == "git log (files at 1 paths: /etc/passwd)"
        assert target(request("git", "x" * 3_999, "secret", "y")).endswith("x secret y"), (
            "it is cut when that is taken out"
        )
        handle = await at.begin("sleep 86434 # " + "x" * 4_080 + "secret's")
        target = at.functions.functions()["[method]process-handle.kill"].audited
        assert target is not None
        assert target(handle).endswith("xsecret's")


@MODES
async def test_large_output_is_decoded_while_others_go_on(tmp_path: Path, sandboxed: bool) -> None:
    decoded_on = []
    run_sync = trio.to_thread.run_sync

    async def noting(work: Any, *arguments: Any, **options: Any) -> Any:
        decoded_on.append(work)
        return await run_sync(work, *arguments, **options)

    async with processes(tmp_path, sandboxed) as at:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(trio.to_thread, "run_sync", noting)
            script = "head -c 1048576 /dev/zero | tr '\\0' '\\377'"
            assert (await at.run(script)).stdout == "\ufffd" * (1 << 20)
            assert len(decoded_on) == 1
            await at.run("echo little")
            assert len(decoded_on) == 1


@PLAIN_ONLY
async def test_a_fixed_path_needs_the_sandbox(tmp_path: Path, sandboxed: bool) -> None:
    async with processes(tmp_path, sandboxed) as at:
        error = await refused(at.run("true", file_injections=[injected("fixed-path", "/etc/passwd", b"")]))
        assert (error.case, error.payload) == ("unknown", "fixed paths need the sandbox")


@SANDBOX_ONLY
async def test_in_the_sandbox_only_the_callers_folders_are_written_to(tmp_path: Path, sandboxed: bool) -> None:
    (tmp_path / "state" / "homes" / "bob").mkdir(parents=True)
    (tmp_path / "state" / "secrets").write_text("secret")
    async with processes(tmp_path, sandboxed) as at:
        script = f"""
            for place in . $HOME /tmp /etc /usr {tmp_path}; do (echo x > $place/written) 2> /dev/null && echo $place; done
            ls {tmp_path}/state {tmp_path}/state/homes /run/* 2> /dev/null; ls /proc | grep -c '^[0-9]*$' > count
        """
        lines = (await at.run(script)).stdout.split("\n")
        assert lines[:3] == [".", str(tmp_path / "state/homes/alice"), "/tmp"]
        assert "secrets" not in lines
        assert "bob" not in lines
        assert int((at.work / "count").read_text()) < 10
        assert (tmp_path / "state/scratch/alice/shell/written").exists()
        assert not Path("/etc/written").exists()
        assert not Path("/tmp/written").exists()


@MODES
async def test_a_call_that_ends_early_takes_its_command_with_it(tmp_path: Path, sandboxed: bool) -> None:
    async with processes(tmp_path, sandboxed) as at, trio.open_nursery() as nursery:
        nursery.start_soon(at.run, "echo started > begun; exec sleep 86433")
        await at.written("begun")
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await gone("sleep 86433")
            await at.emptied()
