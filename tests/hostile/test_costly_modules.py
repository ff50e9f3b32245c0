"""A module that costs much to read or to compile is refused within the operator's bounds, and holds up nobody else."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tomli_w
import trio
from guests_in_wat import Guest, bad, capsule, good, good_still_answers, hosted, spin

from astrid_host import AstridError, open_host
from astrid_host.abi import core_module
from astrid_host.engine import Bounds, Engine
from astrid_host.engine.compiling import WORKERS, Workers
from astrid_host.errors import ModuleRefused

HEAD = b"\0asm\1\0\0\0"
SECOND_S = 1.0  # for what has to be over at once, on a machine that others use too


def leb(number: int) -> bytes:
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])


def section(number: int, content: bytes) -> bytes:
    return bytes([number]) + leb(len(content)) + content


def name(text: str) -> bytes:
    return leb(len(text)) + text.encode()


def slow_to_compile(bodies: int = 4, rounds: int = 120_000) -> bytes:
    """Megabytes of branches and locals: much more work than its size tells."""
    code = (b"\x20\x00\x04\x40\x20\x01\x41\x01\x6a\x21\x02\x0b") * rounds
    body = b"\x01" + leb(1000) + b"\x7f" + code + b"\x0b"
    one = leb(len(body)) + body
    hook = b"\x00\x41\x80\x20\x0b"
    return (
        HEAD
        + section(1, b"\2\x60\x04\x7f\x7f\x7f\x7f\x01\x7f\x60\0\0")
        + section(3, leb(bodies + 1) + b"\0" + b"\1" * bodies)
        + section(5, b"\1\0\1")
        + section(
            7, b"\3" + name("memory") + b"\2\0" + name("cabi_realloc") + b"\0\0" + name("astrid-hook-trigger") + b"\0\0"
        )
        + section(10, leb(bodies + 1) + leb(len(hook)) + hook + one * bodies)
    )


IMPORT = name("a") + name("b") + b"\0\0"
TOO_MUCH = {
    "imports in one section": HEAD + section(1, b"\1\x60\0\0") + section(2, leb(300_000) + IMPORT * 300_000),
    "import sections without end": HEAD + section(1, b"\1\x60\0\0") + section(2, leb(20) + IMPORT * 20) * 200_000,
    "import sections that are empty": HEAD + section(2, b"\0") * 2_000_000,
    "custom sections without end": HEAD + section(0, b"\1a") * 1_000_000,
    "unknown sections without end": HEAD + b"\x0c\0" * 3_000_000,
    "functions without end": HEAD + section(1, b"\1\x60\0\0") + section(3, leb(999_999) + bytes(999_999)),
    "function sections without end": HEAD + section(1, b"\1\x60\0\0") + section(3, leb(9_000) + bytes(9_000)) * 900,
    "types without end": HEAD + section(1, leb(900_000) + b"\x60\0\0" * 900_000),
    "a type with too many values": HEAD + section(1, b"\1\x60" + leb(900_000) + b"\x7f" * 900_000 + b"\0"),
    "exports without end": HEAD + section(7, leb(300_000) + (name("a") + b"\1\0") * 300_000),
    "names of megabytes": HEAD + section(0, name("a" * (8 << 20))),
    "names of megabytes in exports": HEAD + section(7, leb(9_000) + (name("a" * 2_000) + b"\1\0") * 9_000),
    "modules without end in a component": b"\0asm\x0d\0\1\0" + section(1, HEAD) * 500_000,
    "sections of modules in a component": b"\0asm\x0d\0\1\0" + section(1, HEAD + section(0, b"\1a") * 9_000) * 900,
    "components in components": b"\0asm\x0d\0\1\0" + section(4, b"\0asm\x0d\0\1\0" + b"\x0c\0" * 9_000) * 900,
}


@pytest.mark.parametrize("wasm", TOO_MUCH.values(), ids=TOO_MUCH.keys())
def test_a_module_of_more_parts_than_any_capsule_has_is_refused_before_they_are_read(wasm: bytes) -> None:
    begin = time.process_time()
    with pytest.raises(ModuleRefused, match="more than"):
        core_module(wasm)
    assert time.process_time() - begin < SECOND_S


async def test_thousands_of_unknown_imports_with_long_names_are_told_in_short(tmp_path: Path) -> None:
    imports = [f'(import "{"m" * 90}{number}" "{"n" * 900}" (func))' for number in range(900)]
    bad(tmp_path, Guest(*imports).handles(""))
    async with hosted(tmp_path) as host:
        error = str(host.capsules["bad"].error)
        assert "and 880 more" in error
        assert len(error) < 20_000
        await good_still_answers(host)


# Compiling.


async def test_a_module_that_takes_too_long_to_compile_is_refused_with_size_limit_and_key(tmp_path: Path) -> None:
    wasm = slow_to_compile()
    bad(tmp_path, wasm)
    async with open_host(
        [tmp_path], state_dir=":memory:", workspace=tmp_path, limits={"compile_secs": 0.3, "start_secs": 30.0}
    ) as host:
        error = str(host.capsules["bad"].error)
        assert f"{len(wasm)} bytes takes more than 0.3 s" in error
        assert "raise compile_secs in the [host] table of host.toml" in error
        await good_still_answers(host)


async def test_a_module_that_takes_too_much_memory_to_compile_is_refused(tmp_path: Path) -> None:
    bad(tmp_path, slow_to_compile())
    limits = {"compile_memory": 128 << 20, "start_secs": 30.0}
    async with open_host([tmp_path], state_dir=":memory:", workspace=tmp_path, limits=limits) as host:
        error = str(host.capsules["bad"].error)
        assert f"takes more than {128 << 20} bytes of memory to compile" in error
        assert "compile_memory" in error
        await good_still_answers(host)


async def test_the_others_start_and_are_called_while_one_is_compiled(tmp_path: Path) -> None:
    bad(tmp_path, slow_to_compile(30))
    began = trio.current_time()
    limits = {"start_secs": 0.2}
    async with open_host([tmp_path], state_dir=":memory:", workspace=tmp_path, limits=limits) as host:
        assert host.capsules["bad"].state == "loading"
        await good_still_answers(host)
        assert host.capsules["bad"].state == "loading"
        left = trio.current_time()
    assert trio.current_time() - left < SECOND_S  # and leaving does not wait for it either
    assert left - began < 20


async def test_a_late_capsule_keeps_its_tool_and_who_calls_it_waits(tmp_path: Path) -> None:
    wasm = slow_to_compile(1, 10_000)
    capsule(tmp_path, "a-late", wasm, {"tool.v1.execute.shared": "act", "late.ask": "act"}, [])
    second = Guest()
    second.handles(second.say("second.said"))
    capsule(tmp_path, "b-second", second, {"tool.v1.execute.shared": "act"}, ["second.said"])
    limits = {"start_secs": 0.001}
    async with open_host([tmp_path], state_dir=":memory:", workspace=tmp_path, limits=limits) as host:
        result = await host.tools.execute("shared", {}, timeout=0.5)  # there is no router here: only who has it counts
        assert result.is_error
        with trio.fail_after(30):
            while host.capsules["a-late"].state == "loading":
                await trio.sleep(0.01)
        assert host.capsules["a-late"].state == "ready"
        assert list(host.capsules["b-second"].inactive) == ["tool.v1.execute.shared"]


async def test_a_guard_is_never_late(tmp_path: Path) -> None:
    wasm = slow_to_compile(1, 40_000)
    folder = capsule(tmp_path, "warden", wasm, {"good.ask": {"handler": "act", "guard": True}}, [])
    assert folder.is_dir()
    good(tmp_path)
    limits = {"start_secs": 0.001}
    async with open_host([tmp_path], state_dir=":memory:", workspace=tmp_path, limits=limits, trust=True) as host:
        assert host.capsules["warden"].state == "ready"


def test_a_compiler_has_nothing_of_the_hosts_environment_and_ends_with_it(tmp_path: Path) -> None:
    (tmp_path / "slow.wasm").write_bytes(slow_to_compile(30))
    program = f"""
import sys
from pathlib import Path
from astrid_host.engine import Engine
Engine(None).module("slow", Path({str(tmp_path / "slow.wasm")!r}).read_bytes())
"""
    host = subprocess.Popen([sys.executable, "-c", program], env={**os.environ, "SECRET_KEY": "hunter2"})
    try:
        compiler = _compiler_of(host.pid)
        assert b"SECRET_KEY" not in (compiler / "environ").read_bytes()
        until = time.monotonic() + 30
        while not int((compiler / "stat").read_text().rpartition(")")[2].split()[16]) > 0:  # its niceness
            assert time.monotonic() < until
            time.sleep(0.01)
    finally:
        host.kill()
        host.wait()
    until = time.monotonic() + 10
    while _is_alive(compiler):
        assert time.monotonic() < until
        time.sleep(0.01)


def _compiler_of(pid: int) -> Path:
    """The process that compiles for another one."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        for process in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == pid and b"astrid_host.engine.compiler" in (process / "cmdline").read_bytes():
                    return process
            except OSError:
                continue
        time.sleep(0.01)
    raise AssertionError("no compiler was started")


def _is_alive(process: Path) -> bool:
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


async def test_a_compilation_that_is_cancelled_ends_its_process_at_once(tmp_path: Path) -> None:
    bad(tmp_path, slow_to_compile(30))
    began = trio.current_time()
    with trio.move_on_after(1.0):
        async with open_host([tmp_path], state_dir=":memory:", workspace=tmp_path, limits={"start_secs": 60.0}):
            raise AssertionError("it cannot be compiled so soon")
    assert trio.current_time() - began < 1.0 + SECOND_S
    with trio.fail_after(5):
        while any(worker.is_there for worker in list(WORKERS.busy)):
            await trio.sleep(0.01)


def test_as_many_are_compiled_at_once_as_there_are_cores() -> None:
    assert 1 <= WORKERS.most <= (os.cpu_count() or 1)


# The cache.


def module_of(number: int) -> bytes:
    return Guest(publishes=False).add(f'(func (export "run") (drop (i32.const {number})))').wasm()


def test_what_was_not_used_for_the_longest_time_leaves_the_cache_first(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    engine = Engine(folder)
    engine.module("first", module_of(0))
    (first,) = folder.glob("*.module")
    size = sum(file.stat().st_blocks * 512 for file in folder.iterdir())
    for number in range(1, 4):
        engine.module("more", module_of(number))
    for age, file in enumerate(sorted(folder.glob("*.module"), key=lambda file: file != first)):
        os.utime(file, (1_000_000 - age, 1_000_000 - age))  # `first` is the youngest of them
    bounded = Engine(folder, Bounds(module_cache=2 * size))
    bounded.module("new", module_of(4))
    left = set(folder.glob("*.module"))
    assert len(left) == 2
    assert first in left
    assert {file.stem for file in folder.iterdir()} == {file.stem for file in left}
    assert bounded.is_cached(module_of(4))


def test_a_hundred_reloads_keep_the_cache_within_its_bound(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    engine = Engine(folder, Bounds(module_cache=256 << 10))
    for number in range(100):
        engine.module("guest", module_of(number))
    assert sum(file.stat().st_blocks * 512 for file in folder.iterdir()) <= 256 << 10


def test_files_of_newer_versions_and_of_no_known_form_stay(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    Engine(folder).module("guest", module_of(0))
    key = "0" * 64
    kept = [folder / f"99.0.0-{key}.module", folder / "notes.txt", folder / "1.0.0-short.module"]
    gone = [folder / f"{key}.module", folder / f"1.0.0-{key}.module"]
    for file in (*kept, *gone):
        file.write_bytes(bytes(8192))
        os.utime(file, (0, 0))
    (folder / f"2.0.0-{key}.module").symlink_to(folder / "notes.txt")
    Engine(folder, Bounds(module_cache=64 << 10)).module("guest", module_of(1))
    Engine(folder, Bounds(module_cache=1)).module("guest", module_of(2))
    assert all(file.exists() for file in kept)
    assert not any(file.exists() for file in gone)
    assert (folder / f"2.0.0-{key}.module").is_symlink()


def test_a_module_that_another_host_removed_meanwhile_is_made_anew(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    engine = Engine(folder)
    engine.module("guest", module_of(0))
    for file in folder.iterdir():
        if file.suffix == ".inner":
            file.unlink()
    engine.module("guest", module_of(0))
    for file in folder.iterdir():
        file.unlink()
    engine.module("guest", module_of(0))
    assert engine.compiled == 3


def test_a_compiler_that_ended_for_want_of_work_is_reaped(tmp_path: Path) -> None:
    """It ends by itself after a while; here it is ended, which looks the same to who started it."""
    workers = Workers(1)
    worker = workers.take(1 << 30, lambda: False)
    assert worker is not None
    workers.give_back(worker, keep=True)
    process = worker._process
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    workers.reap()
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)
    workers.close()


# Files that are not what they seem.


@pytest.mark.parametrize("kind", ["a terabyte", "a pipe", "a device"])
async def test_a_module_that_is_no_plain_file_of_some_size_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    folder = capsule(tmp_path, "bad", Guest().handles(""), {"bad.ask": "act"}, [])
    text = (folder / "Capsule.toml").read_text().replace("[[component]]", f'[[component]]\nhash = "{"0" * 64}"')
    (folder / "Capsule.toml").write_text(text)
    (folder / "bad.wasm").unlink()
    if kind == "a terabyte":
        (folder / "bad.wasm").touch()
        os.truncate(folder / "bad.wasm", 1 << 40)
    elif kind == "a pipe":
        os.mkfifo(folder / "bad.wasm")
    else:
        (folder / "bad.wasm").symlink_to("/dev/zero")
    good(tmp_path)
    async with hosted(tmp_path) as host:
        assert host.capsules["bad"].state == "failed"
        await good_still_answers(host)
    begin = time.process_time()
    check = subprocess.run([sys.executable, "-m", "astrid_host.cli", "check", str(folder)], timeout=30, check=False)
    assert check.returncode == 1
    assert time.process_time() - begin < SECOND_S
    inspect = [sys.executable, "-m", "astrid_host.cli", "inspect", str(folder / "bad.wasm")]
    assert subprocess.run(inspect, timeout=30, check=False).returncode == 2


async def test_a_reload_of_a_folder_that_became_hostile_lets_the_loop_run(tmp_path: Path) -> None:
    folder = capsule(tmp_path, "bad", Guest().handles(""), {"bad.ask": "act"}, [])
    good(tmp_path)
    async with hosted(tmp_path) as host:
        os.truncate(folder / "bad.wasm", 200 << 20)  # of a size that is read
        content = {**_manifest(folder), "component": [{"file": "bad.wasm", "hash": "0" * 64}]}
        (folder / "Capsule.toml").write_text(tomli_w.dumps(content))
        worst, last = 0.0, trio.current_time()
        done = trio.Event()

        async def reload() -> None:
            with pytest.raises(AstridError):
                await host.reload("bad")
            done.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(reload)
            while not done.is_set():
                await trio.sleep(0.001)
                worst, last = max(worst, trio.current_time() - last), trio.current_time()
        assert worst < 0.25
        await good_still_answers(host)


def _manifest(folder: Path) -> dict[str, object]:
    import tomllib

    return tomllib.loads((folder / "Capsule.toml").read_text())


# Hooks.


async def test_an_install_hook_without_end_does_not_hold_up_the_start_of_others(tmp_path: Path) -> None:
    for number in range(3):
        guest = Guest().handles("")
        guest.add(f'(func (export "astrid-install") {spin()})')
        folder = capsule(tmp_path / "capsules", f"bad{number}", guest, {"bad.ask": "act"}, [])
        with (folder / "Capsule.toml").open("a") as manifest:
            manifest.write("\n[limits]\ntimeout_secs = 3600\n")
    good(tmp_path / "capsules")
    limits = {"start_secs": 0.1, "hook_secs": 3.0}
    async with open_host(
        [tmp_path / "capsules"], state_dir=tmp_path / "state", workspace=tmp_path / "capsules", limits=limits
    ) as host:
        assert host.capsules["bad0"].state == "loading"
        await good_still_answers(host)
        with trio.fail_after(20):
            while host.capsules["bad0"].state == "loading":
                await trio.sleep(0.01)
        assert "raise hook_secs in the [host] table of host.toml" in str(host.capsules["bad0"].error)
        await good_still_answers(host)
