"""The guest of the call benchmark: a relay, which publishes what it is handed on the topic that is its action.

It exists as a core module for our engine, as a component around that same module for `wasmtime.component`, and as an Extism
plugin that does the same work with Extism's own kernel functions. Each answers `continue`, or `deny` when its publish was
refused.
"""

from __future__ import annotations

IPC = "astrid:ipc/host@1.0.0"
HOOK = "astrid-hook-trigger"

# Memory: 16..31 the result of publish, 32..51 the capsule-result, 64..79 the two words; what the host allocates follows
# from 1024 on and is freed, all of it, by the post-return function.
_FIELDS = f"""
  (import "{IPC}" "publish" (func $publish (param i32 i32 i32 i32 i32)))
  (memory (export "memory") 2)
  (global $free (mut i32) (i32.const 1024))
  (data (i32.const 64) "continuedeny")
  (func (export "cabi_realloc") (param $old i32) (param $old_size i32) (param $align i32) (param $size i32) (result i32)
    (local $at i32)
    (if (local.get $old) (then unreachable))
    (local.set $at (i32.and
      (i32.add (global.get $free) (i32.sub (local.get $align) (i32.const 1)))
      (i32.sub (i32.const 0) (local.get $align))))
    (global.set $free (i32.add (local.get $at) (local.get $size)))
    (if (i32.gt_u (global.get $free) (i32.const 131072)) (then unreachable))
    (local.get $at))
  (func (export "{HOOK}") (param $action i32) (param $action_size i32) (param $payload i32) (param $size i32) (result i32)
    (call $publish (local.get $action) (local.get $action_size) (local.get $payload) (local.get $size) (i32.const 16))
    (if (i32.load8_u (i32.const 16))
      (then (i32.store (i32.const 32) (i32.const 72)) (i32.store (i32.const 36) (i32.const 4)))
      (else (i32.store (i32.const 32) (i32.const 64)) (i32.store (i32.const 36) (i32.const 8))))
    (i32.store8 (i32.const 40) (i32.const 0))
    (i32.const 32))
  (func (export "cabi_post_{HOOK}") (param i32)
    (global.set $free (i32.const 1024)))
"""

CORE = f"(module {_FIELDS})"

# The relay's memory has to exist before `publish` can be lowered into it, and `publish` before the relay: a table between
# them is filled last, as wit-component does it.
COMPONENT = f"""
(component
  (import "{IPC}" (instance $ipc
    (type $cases (variant
      (case "capability-denied") (case "invalid-input") (case "closed") (case "rate-limited") (case "backpressure")
      (case "quota") (case "timeout") (case "unknown" string)))
    (export "error-code" (type $error-code (eq $cases)))
    (export "publish" (func (param "topic" string) (param "payload" string) (result (result (error $error-code)))))))
  (core module $between
    (type $publish (func (param i32 i32 i32 i32 i32)))
    (table (export "table") 1 1 funcref)
    (func (export "publish") (param i32 i32 i32 i32 i32)
      (call_indirect (type $publish)
        (local.get 0) (local.get 1) (local.get 2) (local.get 3) (local.get 4) (i32.const 0))))
  (core module $relay {_FIELDS})
  (core module $last
    (import "" "table" (table 1 1 funcref))
    (import "" "publish" (func $publish (param i32 i32 i32 i32 i32)))
    (elem (i32.const 0) func $publish))
  (core instance $between (instantiate $between))
  (core instance $relay (instantiate $relay
    (with "{IPC}" (instance (export "publish" (func $between "publish"))))))
  (core func $publish (canon lower (func $ipc "publish")
    (memory (core memory $relay "memory")) (realloc (core func $relay "cabi_realloc")) string-encoding=utf8))
  (core instance (instantiate $last
    (with "" (instance (export "table" (table $between "table")) (export "publish" (func $publish))))))
  (type $capsule-result-record (record (field "action" string) (field "data" (option string))))
  (export $capsule-result "capsule-result" (type $capsule-result-record))
  (func $hook (param "action" string) (param "payload" (list u8)) (result $capsule-result)
    (canon lift (core func $relay "{HOOK}")
      (memory (core memory $relay "memory")) (realloc (core func $relay "cabi_realloc"))
      (post-return (core func $relay "cabi_post_{HOOK}")) string-encoding=utf8))
  (export "{HOOK}" (func $hook)))
"""

# 0x65756e69746e6f63 is `continue`. The input lies in Extism's own memory already, so the host reads it from there.
EXTISM = """
(module
  (import "extism:host/env" "input_offset" (func $input_offset (result i64)))
  (import "extism:host/env" "input_length" (func $input_length (result i64)))
  (import "extism:host/env" "alloc" (func $alloc (param i64) (result i64)))
  (import "extism:host/env" "store_u64" (func $store_u64 (param i64 i64)))
  (import "extism:host/env" "output_set" (func $output_set (param i64 i64)))
  (import "extism:host/user" "publish" (func $publish (param i64 i64)))
  (func (export "hook") (result i32)
    (local $answer i64)
    (call $publish (call $input_offset) (call $input_length))
    (local.set $answer (call $alloc (i64.const 8)))
    (call $store_u64 (local.get $answer) (i64.const 0x65756e69746e6f63))
    (call $output_set (local.get $answer) (i64.const 8))
    (i32.const 0)))
"""
