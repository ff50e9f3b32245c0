"""`astrid-host inspect`: imports and exports of a WebAssembly file, and what of it this host cannot supply."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from astrid_host.bundled import capsules_folder
from astrid_host.engine import wat

Astrid: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize("name", ["router", "word-tools"])
def test_a_capsule_of_the_host_has_only_imports_that_the_host_knows(astrid: Astrid, name: str) -> None:
    file = capsules_folder() / name / f"{name}.wasm"
    done = astrid("inspect", file)
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout.startswith(f"{file}: core module, {file.stat().st_size} bytes\n")
    imports, exports = done.stdout.split("exports:\n")
    assert "  astrid:ipc/host@1.0.0 publish (i32, i32, i32, i32, i32) -> ()\n" in imports
    assert "  astrid-hook-trigger (i32, i32, i32, i32) -> (i32)\n" in exports
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
