"""What the canonical ABI promises a guest, and what it forbids one: post-return, encodings, the size of one string."""

from __future__ import annotations

from pathlib import Path

import pytest
import wasmtime
from guests_in_wat import OK_TEXT, Guest, bad, capsule, good_still_answers, hosted, next_of, report_of

from astrid_host import open_host

LOG = '(import "astrid:sys/host@1.0.0" "log" (func $log (param i32 i32 i32)))'
# The memory holds more than the longest string, of which nothing is ever touched.
PAGES, LONGEST = 4200, (1 << 28) - 1

# As componentize-js makes them: nothing is entered again before the post-return function of what was left was called.
ENTERED = """
  (global $inside (mut i32) (i32.const 0))
  (func $enter (if (global.get $inside) (then unreachable)) (global.set $inside (i32.const 1)))
  (func $leave (global.set $inside (i32.const 0)))"""


def strict(guest: Guest, *exports: str) -> Guest:
    guest.add(ENTERED)
    for name in exports:
        guest.add(f'(func (export "{name}") (call $enter))', f'(func (export "cabi_post_{name}") (call $leave))')
    return guest.add('(func (export "cabi_post_astrid-hook-trigger") (param i32) (call $leave))')


@pytest.mark.parametrize("exports", [("astrid-install",), ("run",), ("astrid-install", "run")], ids=" ".join)
async def test_a_post_return_function_is_called_for_exports_without_a_result(
    exports: tuple[str, ...], tmp_path: Path
) -> None:
    guest = strict(Guest(), *exports)
    guest.handles(f"(call $enter) {guest.say('strict.said')}")
    capsule(tmp_path / "capsules", "strict", guest, {"strict.ask": "act"}, ["strict.said"])
    (tmp_path / "work").mkdir()
    async with open_host([tmp_path / "capsules"], state_dir=tmp_path / "state", workspace=tmp_path / "work") as host:
        async with host.subscribe("strict.said") as events:
            for number in range(3):
                host.publish("strict.ask", number)
                assert (await next_of(events)).payload == number


async def test_a_post_return_function_of_the_install_hook_that_traps_fails_the_capsule_and_no_other(
    tmp_path: Path,
) -> None:
    guest = Guest().handles("")
    guest.add('(func (export "astrid-install"))', '(func (export "cabi_post_astrid-install") unreachable)')
    bad(tmp_path / "capsules", guest)
    (tmp_path / "work").mkdir()
    async with open_host([tmp_path / "capsules"], state_dir=tmp_path / "state", workspace=tmp_path / "work") as host:
        assert host.capsules["bad"].state == "failed"
        await good_still_answers(host)


def component(option: str) -> bytes:
    main = Guest(publishes=False).handles("").source().removeprefix("(module").removesuffix(")")
    return bytes(
        wasmtime.wat2wasm(f"""(component
          (core module $main {main} (func (export "f") (param i32 i32)))
          (core instance $i (instantiate $main))
          (alias core export $i "memory" (core memory $memory))
          (alias core export $i "cabi_realloc" (core func $realloc))
          (func (export "f") (param "text" string)
            (canon lift (core func $i "f") {option} (memory $memory) (realloc $realloc))))""")
    )


def embedded(encoding: int) -> bytes:
    """A core module with the metadata that bindings leave for the tool that makes a component of it."""
    name = b"wit-component-encoding"
    section = bytes([len(name)]) + name + bytes([4, encoding])
    metadata = b"\0asm\x0d\0\x01\0" + bytes([0, len(section)]) + section
    escaped = "".join(f"\\{byte:02x}" for byte in metadata)
    guest = Guest().handles("").add(f'(@custom "component-type:wit-bindgen:0.1:world" "{escaped}")')
    return guest.wasm()


@pytest.mark.parametrize(
    ("wasm", "encoding"),
    [
        (component("string-encoding=utf16"), "utf16"),
        (component("string-encoding=latin1+utf16"), "latin1+utf16"),
        (embedded(1), "utf16"),
        (embedded(2), "latin1+utf16"),
    ],
    ids=["component, utf16", "component, latin1+utf16", "metadata, utf16", "metadata, latin1+utf16"],
)
async def test_another_encoding_than_utf8_is_refused_at_load(wasm: bytes, encoding: str, tmp_path: Path) -> None:
    bad(tmp_path, wasm)
    async with hosted(tmp_path) as host:
        assert host.capsules["bad"].state == "failed"
        assert f"string-encoding={encoding}" in (host.capsules["bad"].error or "")
        assert "string-encoding=utf8" in (host.capsules["bad"].error or "")
        await good_still_answers(host)


@pytest.mark.parametrize(
    "wasm", [component(""), component("string-encoding=utf8"), embedded(0)], ids=["by default", "said", "metadata"]
)
async def test_utf8_is_what_is_expected(wasm: bytes, tmp_path: Path) -> None:
    bad(tmp_path, wasm)
    async with hosted(tmp_path) as host:
        assert host.capsules["bad"].state == "ready", host.capsules["bad"].error


@pytest.mark.parametrize(
    "call",
    [
        f"(call $log (i32.const 2) (i32.const 2048) (i32.const {LONGEST + 1}))",
        f"(call $publish_raw (i32.const 2048) (i32.const {LONGEST + 1}) {OK_TEXT} (i32.const 1104))",
        f"(call $publish_raw {OK_TEXT} (i32.const 2048) (i32.const {LONGEST + 1}) (i32.const 1104))",
    ],
    ids=["a line for the log", "a topic", "a payload"],
)
async def test_a_string_of_two_to_the_28_bytes_is_a_fault_before_it_is_copied(call: str, tmp_path: Path) -> None:
    guest = Guest(LOG, pages=PAGES).handles(call)
    bad(tmp_path, guest, limits={"memory_bytes": (PAGES + 1) << 16})
    async with hosted(tmp_path) as host:
        if host.capsules["bad"].state == "failed":  # this operator's ceiling is lower: no guest has so much memory
            assert "memory" in (host.capsules["bad"].error or "")
            return
        report = await report_of(host, "bad.ask")
        assert report["reason"] == "guest-fault"
        assert f"at most {LONGEST}" in report["detail"]
        await good_still_answers(host)
