"""Capsules for the benchmarks of the whole host: guests in WebAssembly text, in folders as the host loads them.

`relay` publishes what it hears on `ASKED` again on `RELAYED`. `computing` says on `BEGUN` that it began, and then computes
until the host ends it: its limit is an hour, which no benchmark lasts.
"""

from __future__ import annotations

from pathlib import Path

import tomli_w

from astrid_host.engine import wat
from benchmarks.relay import CORE, HOOK, IPC

ASKED, RELAYED = "bench.v1.asked", "bench.v1.relayed"
COMPUTE, BEGUN = "bench.v1.compute", "bench.v1.begun"
LIMIT_S = 3600

# Memory: 16..31 the result of publish; what the host allocates follows from 1024 on, and is not freed: the call never ends.
COMPUTING = f"""
(module
  (import "{IPC}" "publish" (func $publish (param i32 i32 i32 i32 i32)))
  (memory (export "memory") 2)
  (global $free (mut i32) (i32.const 1024))
  (func (export "cabi_realloc") (param $old i32) (param $old_size i32) (param $align i32) (param $size i32) (result i32)
    (local $at i32)
    (local.set $at (i32.and (i32.add (global.get $free) (i32.const 7)) (i32.const -8)))
    (global.set $free (i32.add (local.get $at) (local.get $size)))
    (local.get $at))
  (func (export "{HOOK}") (param $action i32) (param $action_size i32) (param $payload i32) (param $size i32) (result i32)
    (call $publish (local.get $action) (local.get $action_size) (local.get $payload) (local.get $size) (i32.const 16))
    (loop $on (br $on))
    (unreachable)))
"""


def relay(place: Path) -> None:
    """Write the capsule `relay` below `place`."""
    _capsule(place, "relay", CORE, ASKED, RELAYED)


def computing(place: Path) -> None:
    """Write the capsule `computing` below `place`."""
    _capsule(place, "computing", COMPUTING, COMPUTE, BEGUN)


def _capsule(place: Path, name: str, source: str, hears: str, says: str) -> None:
    """Both guests publish on the topic that is their action, so the row's handler is that topic."""
    folder = place / name
    folder.mkdir()
    manifest = {
        "package": {"name": name, "version": "1.0.0"},
        "component": [{"id": name, "file": f"{name}.wasm"}],
        "publish": {says: {"wit": "opaque"}},
        "subscribe": {hears: {"wit": "opaque", "handler": says}},
        "limits": {"timeout_secs": LIMIT_S},
    }
    (folder / "Capsule.toml").write_text(tomli_w.dumps(manifest), encoding="utf-8")
    (folder / f"{name}.wasm").write_bytes(wat(source))
