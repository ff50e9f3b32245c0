"""`astrid-host inspect`: imports and exports of a WebAssembly file, and what of it this host cannot supply."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from astrid_host.bundled import capsules_folder
from astrid_host.cli import inspect as command
from astrid_host.engine import wat

Astrid: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def inspect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[str], dict[str, str]]:
    """What the command says, in this process, of a module with these parts: the lines that have a heading before them."""

    def inspect(parts: str) -> dict[str, str]:
        (tmp_path / "guest.wasm").write_bytes(wat(f"(module {parts})"))
        command.inspect(tmp_path / "guest.wasm")
        lines = capsys.readouterr().out.splitlines()[-4:]
        return {name: text.strip() for name, _, text in (line.partition(":") for line in lines)}

    return inspect


@pytest.mark.parametrize("name", ["router", "word-tools"])
def test_a_capsule_of_the_host_has_only_imports_that_the_host_knows(astrid: Astrid, name: str) -> None:
    file = capsules_folder() / name / f"{name}.wasm"
    done = astrid("inspect", file)
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout.startswith(f"{file}: core module, {file.stat().st_size} bytes\n")
    imports, exports = done.stdout.split("exports:\n")
    assert "  astrid:ipc/host@1.0.0 publish (i32, i32, i32, i32, i32) -> ()\n" in imports
    assert "  astrid-hook-trigger (i32, i32, i32, i32) -> (i32)   (canonical)\n" in exports
    assert "\nabi:     canonical\n" in exports
    assert "this host" not in done.stdout


def test_unknown_imports_and_wrong_signatures_are_marked(astrid: Astrid, tmp_path: Path) -> None:
    file = tmp_path / "odd.wasm"
    file.write_bytes(
        wat(
            """(module
                 (import "astrid:sys/host@1.0.0" "clock-ms" (func (param i32)))
                 (import "astrid:sys/host@1.0.0" "clock-mz" (func))
                 (import "wasi_snapshot_preview1" "fd_write" (func))
                 (memory (export "memory") 1))"""
        )
    )
    lines = astrid("inspect", file).stdout.splitlines()
    assert "  astrid:sys/host@1.0.0 clock-ms (i32) -> ()   (this host has () -> (i64))" in lines
    assert "  astrid:sys/host@1.0.0 clock-mz () -> ()   (unknown to this host)" in lines
    assert "  wasi_snapshot_preview1 fd_write () -> ()   (unknown to this host)" in lines


MEMORY = '(memory (export "memory") 1 3)'
REALLOC = '(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) i32.const 0)'
HOOK = '(func (export "astrid-hook-trigger") (param i32 i32 i32 i32) (result i32) i32.const 0)'
READY = '(import "astrid:sys/host@1.0.0" "signal-ready" (func $ready))'
RUN = '(func (export "run"))'
LOOP = '(func (export "run") (loop $on (br $on)))'
READY_LOOP = '(func (export "run") call $ready (loop $on (br $on)))'


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ((MEMORY, REALLOC, HOOK), "an interceptor: astrid-hook-trigger is called"),
        ((MEMORY, REALLOC, HOOK, RUN), "an interceptor: astrid-hook-trigger is called"),
        ((READY, MEMORY, REALLOC, HOOK, READY_LOOP), "a run loop: run subscribes"),
        ((MEMORY, REALLOC, HOOK, LOOP), "an interceptor if run returns at once"),
        ((MEMORY, LOOP), "a run loop: run subscribes"),
        ((MEMORY, RUN), "a capsule that does nothing"),
        ((MEMORY,), "no capsule: it exports neither astrid-hook-trigger nor run"),
    ],
)
def test_it_says_how_a_host_would_call_the_file(
    inspect: Callable[[str], dict[str, str]], parts: tuple[str, ...], said: str
) -> None:
    assert inspect("".join(parts))["kind"].startswith(said)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ((MEMORY, REALLOC, HOOK), "canonical"),
        ((MEMORY, HOOK), "incomplete, and refused: astrid-hook-trigger without cabi_realloc"),
        ((MEMORY, REALLOC, '(func (export "astrid-hook-trigger"))'), "not canonical, and refused: astrid-hook-trigger"),
        ((MEMORY, '(global (export "run") i32 (i32.const 0))'), "not canonical, and refused: run"),
        ((MEMORY, '(func (export "cabi_realloc"))', RUN), "not canonical, and refused: cabi_realloc"),
    ],
)
def test_it_says_whether_the_exports_are_canonical(
    inspect: Callable[[str], dict[str, str]], parts: tuple[str, ...], said: str
) -> None:
    assert inspect("".join(parts))["abi"].startswith(said)


def test_memory_is_told_in_pages_and_limits_as_the_manifest_beside_it_has_them(
    inspect: Callable[[str], dict[str, str]], tmp_path: Path
) -> None:
    assert inspect(RUN)["memory"] == "none is exported, and a capsule has to export one"
    found = inspect(MEMORY + RUN)
    assert found["memory"] == "1 page (65536 bytes) at the start, 3 pages (196608 bytes) at most"
    assert found["limits"].startswith(
        "no Capsule.toml beside it has it as its file; by default: memory_bytes = 67108864"
    )
    head = '[package]\nname = "x"\nversion = "1.0.0"\n[[component]]\nfile = "guest.wasm"\n[limits]\n'
    (tmp_path / "Capsule.toml").write_text(f"{head}memory_bytes = 65536\ntimeout_secs = 1.5\n")
    found = inspect('(memory (export "memory") 2)' + RUN)
    assert found["memory"].endswith("no maximum")
    assert found["limits"] == (
        "set beside it: memory_bytes = 65536, timeout_secs = 1.5; by default: concurrency = 1, on_trap = quarantine; "
        "refused: it begins with more memory than that"
    )


def test_names_cannot_reach_the_terminal_as_escape_sequences(astrid: Astrid, tmp_path: Path) -> None:
    file = tmp_path / "sly.wasm"
    file.write_bytes(wat('(module (func (export "\\1b[2J")))'))
    shown = astrid("inspect", file).stdout
    assert "\x1b" not in shown
    assert "\\x1b[2J" in shown


@pytest.mark.parametrize("content", [b"not wasm", b"\0asm\1\0\0\0\1\xff", b"\0asm\x0d\0\1\0"])
def test_what_is_no_module_is_refused_with_the_reason(astrid: Astrid, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "garbage.wasm"
    file.write_bytes(content)
    done = astrid("inspect", file)
    assert (done.stdout, done.returncode) == ("", 1)
    assert done.stderr.startswith(f"astrid-host: {file}: ")
    assert "Traceback" not in done.stderr


def test_a_file_that_does_not_exist_is_wrong_usage(astrid: Astrid, tmp_path: Path) -> None:
    done = astrid("inspect", tmp_path / "nowhere.wasm")
    assert (done.stdout, done.returncode) == ("", 2)
    assert "nowhere.wasm cannot be read" in done.stderr
