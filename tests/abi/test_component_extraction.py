"""The core module that a capsule's file holds, what it says about itself, and why other files are refused."""

from __future__ import annotations

import contextlib

import pytest
import wasmtime
from hypothesis import given, settings
from hypothesis import strategies as st

from astrid_host.abi import CoreImport, core_module, export_kinds
from astrid_host.errors import ModuleRefused

MAIN = """
    (import "astrid:ipc/host@1.0.0" "publish" (func $publish (param i32 i32 i32 i32 i32)))
    (import "env" "shared" (memory 1 3))
    (import "env" "t" (table 1 funcref))
    (import "env" "g" (global i64))
    (memory (export "memory") 17)
    (table (export "table") 1 funcref)
    (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) unreachable)
    (func $hook (export "astrid-hook-trigger") (param i32 i32 i32 i32) (result i32) (call $publish
        (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)) (i32.const 0))
    (func (export "run") (param f32 f64 i64 externref funcref))
    (@custom "component-type:wit-bindgen:0.1" "x")
"""
HOOK = '(memory (export "memory") 1) (func (export "astrid-hook-trigger") (param i32 i32 i32 i32) (result i32) unreachable)'
SHIM = '(core module (table (export "$imports") 1 funcref) (func (export "0") (param i32)))'


def wat(text: str) -> bytes:
    return bytes(wasmtime.wat2wasm(text))


def test_a_core_module_is_itself() -> None:
    wasm = wat(f"(module {MAIN})")
    core = core_module(wasm)
    assert core.wasm is wasm
    assert not core.was_component
    assert core.custom_sections == ("component-type:wit-bindgen:0.1", "name")


def test_imports_and_exports_have_their_types() -> None:
    core = core_module(wat(f"(module {MAIN})"))
    assert core.imports[0] == CoreImport("astrid:ipc/host@1.0.0", "publish", "func", ("i32",) * 5, ())
    assert [(of.name, of.kind, of.describe()) for of in core.imports[1:]] == [
        ("shared", "memory", "memory of 64 KiB, at most 192 KiB"),
        ("t", "table", "table"),
        ("g", "global", "global"),
    ]
    assert {of.name: (of.kind, of.index, of.describe()) for of in core.exports} == {
        "memory": ("memory", 1, "memory of 1088 KiB, no maximum"),
        "table": ("table", 1, "table"),
        "cabi_realloc": ("func", 1, "(i32, i32, i32, i32) -> (i32)"),
        "astrid-hook-trigger": ("func", 2, "(i32, i32, i32, i32) -> (i32)"),
        "run": ("func", 3, "(f32, f64, i64, externref, funcref) -> ()"),
    }


def test_the_main_module_is_found_between_those_that_glue_a_component() -> None:
    main = wat(f"(module {HOOK})")
    wasm = wat(f"(component {SHIM} (core module $main {HOOK}) {SHIM} (core instance (instantiate $main)))")
    core = core_module(wasm)
    assert core.was_component
    assert [export.name for export in core.exports] == ["memory", "astrid-hook-trigger"]
    assert main[:8] == core.wasm[:8]
    wasmtime.Module(wasmtime.Engine(), core.wasm)  # it is a whole module


def test_the_main_module_may_stand_in_a_component_within_the_component() -> None:
    wasm = wat(f"(component {SHIM} (component (component {SHIM} (core module {HOOK}))))")
    assert core_module(wasm).exports[1].name == "astrid-hook-trigger"


def test_a_component_of_too_many_modules_is_refused() -> None:
    with pytest.raises(ModuleRefused, match="more than 1000 core modules"):
        core_module(b"\0asm\x0d\0\x01\0" + b"\x01\x08\0asm\x01\0\0\0" * 1001)


def test_a_component_may_have_only_run() -> None:
    run = '(memory (export "memory") 1) (func (export "run"))'
    assert core_module(wat(f"(component (core module {run}))")).exports[1].name == "run"


def nested(depth: int) -> str:
    return f"(component {nested(depth - 1)})" if depth else f"(component (core module {HOOK}))"


@pytest.mark.parametrize(
    ("wasm", "why"),
    [
        (b"", "it is empty"),
        (b"\0asm", "cut off after 4 bytes"),
        (b"\x7fELF\x02\x01\x01\x00", "it is no WebAssembly: it begins with b'.x7fELF"),
        (b"(module)", "it is WebAssembly text: expected the binary form"),
        (b"\xef\xbb\xbf  ;; a comment\n(component)", "it is WebAssembly text"),
        (b"\0asm\x02\0\0\0", "version 02 00 00 00: expected a core module .01 00 00 00. or a component .0d 00 01 00."),
        (wat("(component)"), "none of the component's 0 core modules has the names of the canonical ABI"),
        (wat(f"(component {SHIM})"), "none of the component's 1 core modules"),
        (wat('(component (core module (memory (export "memory") 1)))'), "none of the component's 1 core modules"),
        (wat('(component (core module (func (export "run"))))'), "none of the component's 1 core modules"),
        (wat('(component (core module (func (export "memory")) (func (export "run"))))'), "none of the component's"),
        (wat(f"(component (core module {HOOK}) (core module {HOOK}))"), "has 2 core modules that export 'memory' and"),
        (wat(nested(12)), "nests others more than 8 deep"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_anything_else_is_refused_with_the_reason(wasm: bytes, why: str) -> None:
    with pytest.raises(ModuleRefused, match=why):
        core_module(wasm)


def section(number: int, content: bytes) -> bytes:
    return b"\0asm\x01\0\0\0" + bytes((number, len(content))) + content


@pytest.mark.parametrize(
    ("wasm", "why"),
    [
        (b"\0asm\x01\0\0\0\x01", "ends too early at byte 0x9"),
        (b"\0asm\x01\0\0\0\x01\x05\x01", "ends too early at byte 0xa"),
        (b"\0asm\x01\0\0\0\x01\x80\x80\x80\x80\x80\x00", "a number is too long"),
        (b"\0asm\x01\0\0\0\x01\xff\xff\xff\xff\x7f", "a number is too large"),
        (section(1, b"\x05\x60\0\0"), "more entries than it has bytes"),
        (section(1, b"\x01\x5f\0"), "types that capsules may not have .form 0x5f."),
        (section(2, b"\x01\x01\xff\x01a\0\0"), "a name is not UTF-8"),
        (section(2, b"\x01\x01a\x01b\x00\x07"), "there is no type 7"),
        (section(2, b"\x01\x01a\x01b\x09"), "an import of kind 9"),
        (section(3, b"\x01\x00"), "there is no type 0"),
        (section(7, b"\x01\x01a\x00\x00"), "there is no function 0"),
        (section(7, b"\x01\x01a\x02\x00"), "there is no memory 0"),
        (section(7, b"\x01\x01a\x09\x00"), "an export of kind 9"),
        (section(10, b"\x01\x7f"), "ends too early"),
        (section(0, b"\x05ab"), "ends too early"),
        (b"\0asm\x0d\0\x01\0\x01\x02\0a", "is not what it says it is"),
        (b"\0asm\x0d\0\x01\0\x04\x08\0asm\x01\0\0\0", "is not what it says it is"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_a_malformed_file_is_refused_with_the_place(wasm: bytes, why: str) -> None:
    with pytest.raises(ModuleRefused, match=why):
        core_module(wasm)


def test_a_file_does_not_make_the_host_believe_in_more_entries_than_engines_allow() -> None:
    content = b"\xc1\x84\x3d" + bytes(4_000_000)  # 1,000,001 imports of the shortest form
    wasm = b"\0asm\x01\0\0\0\x02" + leb(len(content)) + content
    with pytest.raises(ModuleRefused, match="more than 400000 entries"):
        core_module(wasm)


def leb(number: int) -> bytes:
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])


WHOLE = [wat(f"(module {MAIN})"), wat(f"(component {SHIM} (component (core module {HOOK})))")]


@settings(max_examples=400)
@given(data=st.data())
def test_a_damaged_file_is_refused_or_read_but_nothing_else(data: st.DataObject) -> None:
    wasm = bytearray(data.draw(st.sampled_from(WHOLE)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(wasm) - 1))
        match data.draw(st.sampled_from(("set", "cut", "insert", "remove"))):
            case "set":
                wasm[at] = data.draw(st.integers(0, 255))
            case "cut":
                del wasm[at + 1 :]
            case "insert":
                wasm[at:at] = data.draw(st.binary(min_size=1, max_size=4))
            case _:
                del wasm[at : at + 1]
        if not wasm:
            return
    with contextlib.suppress(ModuleRefused):
        export_kinds(core_module(bytes(wasm)))


@given(st.binary(max_size=200), st.sampled_from((b"", b"\0asm\x01\0\0\0", b"\0asm\x0d\0\x01\0")))
def test_any_bytes_are_refused_or_read_but_nothing_else(noise: bytes, head: bytes) -> None:
    with contextlib.suppress(ModuleRefused):
        export_kinds(core_module(head + noise))
