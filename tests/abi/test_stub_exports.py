"""Which of `run`, `astrid-install` and `astrid-upgrade` are certainly stubs, certainly real, or have to be called."""

from __future__ import annotations

import pytest
import wasmtime

from astrid_host.abi import ExportKind, core_module, export_kinds
from astrid_host.abi.binary import Reader
from astrid_host.abi.opcodes import UnknownInstruction, survey

STUB, REAL, UNSURE = ExportKind.STUB, ExportKind.REAL, ExportKind.UNSURE
HEAD = """
    (import "astrid:sys/host@1.0.0" "log" (func $log))
    (memory 1) (table 2 funcref) (elem (i32.const 0) $quiet $says) (global $flag (mut i32) (i32.const 0))
    (func $quiet) (func $says (call $log))
    (func $twice (call $quiet) (call $quiet))
    (func $endless (loop (br 0)))
    (func $itself (if (i32.load (i32.const 0)) (then (call $itself))))
"""


def kinds(body: str) -> dict[str, ExportKind]:
    return export_kinds(core_module(bytes(wasmtime.wat2wasm(f"(module {HEAD} {body})"))))


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("", STUB),
        ("(call $quiet)", STUB),
        ("(call $twice) (call $twice)", STUB),
        ("(if (i32.eqz (global.get $flag)) (then (global.set $flag (i32.const 1)) (call $quiet)))", STUB),
        ("(drop (memory.grow (i32.const 0))) (memory.fill (i32.const 0) (i32.const 0) (i32.const 0))", STUB),
        ("(call $log)", REAL),
        ("(call $quiet) (call $says)", REAL),
        ("(block (call $says))", REAL),
        ("(loop (call $log) (br 0))", REAL),
        ("(if (global.get $flag) (then (call $log)))", UNSURE),
        ("(block (br_if 0 (global.get $flag)) (call $log))", UNSURE),
        ("return (call $log)", UNSURE),
        ("(call $endless)", UNSURE),
        ("(call $itself)", UNSURE),
        ("unreachable", UNSURE),
        ("(call_indirect (i32.const 0))", UNSURE),
        ("(drop (ref.func $says))", UNSURE),
        ("(drop (ref.func $quiet))", STUB),
        ("(return_call $quiet)", STUB),
        ("(return_call $log)", REAL),
        ("(return_call_indirect (i32.const 0))", UNSURE),
    ],
)
def test_the_kind_of_an_export(body: str, kind: ExportKind) -> None:
    assert kinds(f'(func (export "run") {body})') == {"run": kind}


def test_exports_that_share_a_function_are_not_stubs_for_that() -> None:
    shared = '(func (export "run") (export "astrid-install") (export "astrid-upgrade") (call $log))'
    assert set(kinds(shared).values()) == {REAL}


def test_stubs_that_were_not_folded_are_stubs() -> None:
    found = kinds('(func (export "run")) (func (export "astrid-install")) (func (export "astrid-upgrade"))')
    assert found == {"run": STUB, "astrid-install": STUB, "astrid-upgrade": STUB}


def test_a_lone_stub_beside_real_ones_is_a_stub() -> None:
    found = kinds(
        '(func (export "run")) (func (export "astrid-install") (call $log)) (func (export "astrid-upgrade") (call $says))'
    )
    assert found == {"run": STUB, "astrid-install": REAL, "astrid-upgrade": REAL}


def test_an_imported_function_that_is_exported_again_is_real() -> None:
    assert kinds('(export "run" (func $log))') == {"run": REAL}


def test_other_exports_are_not_looked_at() -> None:
    assert kinds('(func (export "astrid-hook-trigger")) (memory (export "run") 1)') == {}


def test_a_chain_of_calls_too_long_to_follow_is_not_called_a_stub() -> None:
    chain = "".join(f"(func $c{i} (call $c{i + 1}))" for i in range(200)) + "(func $c200)"
    assert kinds(f'{chain} (func (export "run") (call $c0))') == {"run": UNSURE}


def test_code_too_much_to_look_at_is_not_called_a_stub() -> None:
    much = "(drop (i64.const -9223372036854775808))" * 90_000
    assert kinds(f'(func (export "run") {much})') == {"run": UNSURE}


def test_many_ways_to_the_same_function_are_followed_once() -> None:
    fan = "".join(f"(func $c{i} {f'(call $c{i + 1})' * 30})" for i in range(40)) + "(func $c40)"
    assert kinds(f'{fan} (func (export "run") (call $c0))') == {"run": STUB}


# Every form of immediate that an instruction may have. After them stands a call, which is found only if they were
# walked over exactly.
INSTRUCTIONS = """
    (block (result i32) (i32.const -5)) drop
    (drop (i64.const -9223372036854775808)) (drop (f32.const 1.5)) (drop (f64.const 2.5))
    (block (block (block (br_table 0 1 2 (global.get $flag)))))
    (drop (select (result i32) (i32.const 1) (i32.const 2) (i32.const 3)))
    (drop (select (i32.const 1) (i32.const 2) (i32.const 3)))
    (local.set 0 (local.tee 0 (local.get 0)))
    (i64.store offset=4294967295 (i32.const 0) (i64.load32_s offset=70000 align=2 (i32.const 0)))
    (drop (i32.extend8_s (i32.trunc_sat_f64_u (f64.const 0)))) (drop (memory.size))
    (memory.init $d (i32.const 0) (i32.const 0) (i32.const 0)) (data.drop $d)
    (memory.copy (i32.const 0) (i32.const 0) (i32.const 0)) (memory.fill (i32.const 0) (i32.const 0) (i32.const 0))
    (table.init $t $e (i32.const 0) (i32.const 0) (i32.const 0)) (elem.drop $e)
    (table.copy (i32.const 0) (i32.const 0) (i32.const 0)) (table.fill $t (i32.const 0) (ref.null func) (i32.const 0))
    (drop (table.grow $t (ref.null func) (i32.const 0))) (drop (table.size $t))
    (table.set $t (i32.const 0) (table.get $t (i32.const 0))) (drop (ref.is_null (ref.null extern)))
    (v128.store offset=300 (i32.const 0) (v128.load32_splat (i32.const 0)))
    (drop (v128.const i32x4 16 16 16 16))
    (drop (i8x16.shuffle 16 16 16 16 16 16 16 16 16 16 16 16 16 16 16 16 (local.get 1) (local.get 1)))
    (drop (i8x16.extract_lane_s 15 (local.get 1))) (drop (f64x2.replace_lane 1 (local.get 1) (f64.const 0)))
    (drop (v128.load16_lane offset=200 3 (i32.const 0) (local.get 1))) (v128.store64_lane 1 (i32.const 0) (local.get 1))
    (drop (v128.load64_zero (i32.const 0))) (drop (i32x4.dot_i16x8_s (local.get 1) (local.get 1)))
    (drop (i8x16.relaxed_swizzle (local.get 1) (local.get 1)))
    (drop (i32.atomic.rmw.add offset=400 (i32.const 0) (i32.const 1))) (atomic.fence)
    (drop (memory.atomic.notify (i32.const 0) (i32.const 1)))
"""


def test_every_form_of_instruction_is_walked_over() -> None:
    module = f"""(module {HEAD} (data $d "x") (table $t 1 funcref) (elem $e func $quiet)
        (func (export "run") (local i32 v128) {INSTRUCTIONS} (call $says)))"""
    core = core_module(bytes(wasmtime.wat2wasm(module)))
    (run,) = core.exports
    found = survey(Reader(core.wasm, *core.outline.bodies[run.index - core.outline.imported_functions]))
    assert found.calls == [2]
    assert (found.indirect, found.stays, found.first) == (False, False, [])


@pytest.mark.parametrize("body", [b"\x00\x06\x40", b"\x00\xfb\x00", b"\x00\xfc\x40", b"\x00\xfe\x05", b"\x00\xff"])
def test_an_unknown_instruction_is_not_walked_over(body: bytes) -> None:
    with pytest.raises(UnknownInstruction):
        survey(Reader(body))


def test_an_export_with_unknown_instructions_has_to_be_called() -> None:
    tail = bytes(wasmtime.wat2wasm('(module (func (export "run") nop))')).replace(b"\x01\x0b", b"\xff\x0b")
    assert export_kinds(core_module(tail)) == {"run": UNSURE}
