"""The real command line as a process of its own, and capsules written by hand for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import astrid_host
from astrid_host.engine import wat

CHECKOUT = Path(astrid_host.__file__).parent.parent
COMMAND = [sys.executable, "-m", "astrid_host.cli"]
BOUND_S = 30

# Answers `continue` to actions of `tool_describe`'s length, and "unknown hook action" to all others.
HANDLER = """(module
  (memory (export "memory") 1)
  (global $top (mut i32) (i32.const 1024))
  (data (i32.const 16) "continue")
  (data (i32.const 32) "deny")
  (data (i32.const 64) "unknown hook action")
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
    global.get $top
    (global.set $top (i32.add (global.get $top) (i32.and (i32.add (local.get 3) (i32.const 15)) (i32.const -16)))))
  (func (export "astrid-hook-trigger") (param $action i32) (param $bytes i32) (param i32 i32) (result i32)
    (i32.store (i32.const 128) (i32.const 16))
    (i32.store (i32.const 132) (i32.const 8))
    (i32.store8 (i32.const 136) (i32.const 0))
    (if (i32.ne (local.get $bytes) (i32.const 13)) (then
      (i32.store (i32.const 128) (i32.const 32))
      (i32.store (i32.const 132) (i32.const 4))
      (i32.store8 (i32.const 136) (i32.const 1))
      (i32.store (i32.const 140) (i32.const 64))
      (i32.store (i32.const 144) (i32.const 19))))
    i32.const 128))"""

# Computes for ever when a handler is called.
SPINNER = """(module
  (memory (export "memory") 1)
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) i32.const 1024)
  (func (export "astrid-hook-trigger") (param i32 i32 i32 i32) (result i32) (loop $on (br $on)) unreachable))"""

# A run loop that says it is ready, and then computes for ever.
READY_SPINNER = """(module
  (import "astrid:sys/host@1.0.0" "signal-ready" (func $ready))
  (memory (export "memory") 1)
  (func (export "run") call $ready (loop $on (br $on))))"""

# A run loop that computes for ever and never reaches the host.
SILENT_SPINNER = """(module
  (memory (export "memory") 1)
  (func (export "run") (loop $on (br $on))))"""

GUESTS = {"handler": HANDLER, "spinner": SPINNER, "ready-spinner": READY_SPINNER, "silent-spinner": SILENT_SPINNER}
HEAD = """[package]
name = "{name}"
version = "1.2.3"

[[component]]
id = "{name}"
file = "guest.wasm"
"""


@pytest.fixture
def surroundings(shared_cache: Path, tmp_path: Path) -> dict[str, str]:
    """Environment variables with folders of the test's own."""
    return {**os.environ, "XDG_DATA_HOME": str(tmp_path / "data"), "XDG_CACHE_HOME": str(shared_cache)}


@pytest.fixture
def astrid(surroundings: dict[str, str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`astrid-host` with these arguments, until it ends."""

    def astrid(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *map(str, arguments)],
            cwd=CHECKOUT,
            env=surroundings,
            capture_output=True,
            text=True,
            timeout=BOUND_S,
            check=False,
        )

    return astrid


@pytest.fixture
def start(surroundings: dict[str, str]) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """`astrid-host` with these arguments, left running; killed at the end of the test if it still does."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str | Path) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            cwd=CHECKOUT,
            env=surroundings,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def capsule(tmp_path: Path) -> Callable[..., Path]:
    """A capsule's folder below `parent`: its rows, after the usual head, and one of the guests of this file."""

    def capsule(name: str, rows: str = "", guest: str = "handler", parent: Path = tmp_path / "given") -> Path:
        folder = parent / name
        folder.mkdir(parents=True)
        (folder / "Capsule.toml").write_text(HEAD.format(name=name) + rows, "utf-8")
        (folder / "guest.wasm").write_bytes(wat(GUESTS[guest]))
        return folder

    return capsule
