"""A module that is not what a capsule has to be is refused when it is loaded, with all that is wrong; the others load."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from guests_in_wat import (
    IPC,
    Guest,
    bad,
    good_still_answers,
    hosted,
)

Make = Callable[[], Guest | bytes]


def without_memory() -> Guest:
    guest = Guest().handles("")
    guest.memory = "(memory {pages})"
    return guest


def imports_memory() -> Guest:
    guest = Guest('(import "env" "memory" (memory 4))').handles("")
    guest.memory = '(export "memory" (memory 0))'
    return guest


def without_allocator() -> Guest:
    guest = Guest().handles("")
    guest.realloc = ""
    return guest


def with_hook(signature: str) -> Guest:
    return Guest().add(f'(func (export "astrid-hook-trigger") {signature} (unreachable))')


def with_allocator(signature: str) -> Guest:
    guest = without_allocator()
    return guest.add(f'(func (export "cabi_realloc") {signature} (unreachable))')


def with_post(signature: str) -> Guest:
    return Guest().handles("").add(f'(func (export "cabi_post_astrid-hook-trigger") {signature} (unreachable))')


REFUSED: dict[str, tuple[Make, tuple[str, ...]]] = {
    "is no WebAssembly": (lambda: b"hello", ("no WebAssembly",)),
    "is cut off": (lambda: Guest().handles("").wasm()[:-9], ("malformed",)),
    "exports no memory": (without_memory, ("memory",)),
    "exports no hook": (Guest, ("astrid-hook-trigger",)),
    "exports no allocator": (without_allocator, ("cabi_realloc",)),
    "has a hook of another signature": (lambda: with_hook("(param i32) (result i64)"), ("astrid-hook-trigger",)),
    "has a hook with many results": (lambda: with_hook("(param i32 i32 i32 i32) (result i32 i32)"), ("i32, i32",)),
    "has an allocator of another signature": (lambda: with_allocator("(param i64) (result i32)"), ("cabi_realloc",)),
    "has an allocator that takes references": (
        lambda: with_allocator("(param externref externref externref externref) (result i32)"),
        ("cabi_realloc",),
    ),
    "has an allocator with many results": (
        lambda: with_allocator(f"(param i32 i32 i32 i32) (result {'i64 ' * 100})"),
        ("cabi_realloc",),
    ),
    "has a post-return function of another signature": (
        lambda: with_post(f"(param i32) (result {'i64 ' * 100})"),
        ("cabi_post_astrid-hook-trigger",),
    ),
    "imports what nobody has": (
        lambda: Guest(
            f'(import "{IPC}" "publishh" (func))',
            '(import "astrid:nothing/host@1.0.0" "x" (func))',
            '(import "env" "fork" (func))',
        ).handles(""),
        ("publishh: did you mean", f"{IPC} publish?", "astrid:nothing/host@1.0.0 x", "env fork"),
    ),
    "imports with another signature": (
        lambda: Guest(f'(import "{IPC}" "publish" (func (param i32)))', publishes=False).handles(""),
        ("publish", "(i32)", "wit/"),
    ),
    "imports a memory": (imports_memory, ("env memory",)),
    "imports WASI": (
        lambda: Guest(
            '(import "wasi_snapshot_preview1" "fd_write" (func (param i32 i32 i32 i32) (result i32)))'
        ).handles(""),
        ("wasi_snapshot_preview1 fd_write", "wasm32-unknown-unknown"),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_a_module_that(name: str, tmp_path: Path) -> None:
    """It is kept as failed, with all that is wrong; the others load."""
    make, told_of = REFUSED[name]
    bad(tmp_path, make())
    async with hosted(tmp_path) as host:
        found = host.capsules["bad"]
        assert found.state == "failed"
        for text in told_of:
            assert text in (found.error or "")
        await good_still_answers(host)


async def test_a_module_that_begins_with_more_memory_than_it_may_have_is_refused_with_the_line_to_write(
    tmp_path: Path,
) -> None:
    guest = Guest(pages=40)
    bad(tmp_path, guest.handles(""), limits={"memory_bytes": 1 << 20})
    async with hosted(tmp_path) as host:
        assert host.capsules["bad"].state == "failed"
        assert f"[limits] memory_bytes = {40 << 16}" in (host.capsules["bad"].error or "")
        await good_still_answers(host)
