"""Bounds of what one capsule may cost the host, in bytes and seconds: the defaults, which keep a laptop alive.

Each has the name that the operator gives it by. Nothing here does anything; who does the work looks before it begins.
"""

from __future__ import annotations

import msgspec

MIB, GIB = 1 << 20, 1 << 30


class Bounds(msgspec.Struct, frozen=True):
    """The operator's bounds.

    Attributes:
        module_bytes: of a capsule's WebAssembly file.
        compile_memory_bytes: of the process that compiles.
        compile_secs: for one module.
        hook_secs: for one `astrid-install` or `astrid-upgrade`, what it waits for included.
        start_secs: for how long a host that starts waits for capsules whose module or hook takes long, before it goes on
            without them.
        module_cache_bytes: of compiled modules that are kept.
        kv_bytes: of what one capsule keeps in kv for one principal, keys and values.
        kv_host_bytes: of what all capsules keep there.
        home_bytes: of one home, and of one `/tmp`: what one capsule keeps for one principal.
        audit_bytes: of the audit's rows; the oldest give way.
    """

    module_bytes: int = 256 * MIB
    compile_memory_bytes: int = 2 * GIB
    compile_secs: float = 60.0
    hook_secs: float = 30.0
    start_secs: float = 2.0
    module_cache_bytes: int = 512 * MIB
    kv_bytes: int = 256 * MIB
    kv_host_bytes: int = 4 * GIB
    home_bytes: int = 1 * GIB
    audit_bytes: int = 512 * MIB


BOUNDS = Bounds()
