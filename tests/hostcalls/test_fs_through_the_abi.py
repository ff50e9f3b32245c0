"""astrid:fs through the ABI of a host: handles that a guest drops, keeps, or loses with its instance; calls that wait."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
from guests_in_wat import Guest, capsule, next_of

from astrid_host import open_host

FS = "astrid:fs/host@1.0.0"
OPEN = f'(import "{FS}" "fs-open" (func $open (param i32 i32 i32 i32)))'
READ_AT = f'(import "{FS}" "[method]file-handle.read-at" (func $read_at (param i32 i64 i32 i32)))'
DROP = f'(import "{FS}" "[resource-drop]file-handle" (func $drop (param i32)))'
COPY = f'(import "{FS}" "fs-copy" (func $copy (param i32 i32 i32 i32 i32)))'
OUT = 1200  # where results of host functions are put
SETTLED = "astrid.v1.dispatch.settled.do.it"
READ = 0  # the mode


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "file").write_bytes(b'{"in":"the file"}')
    (tmp_path / "work" / "big").write_bytes(bytes(1 << 20))
    return tmp_path / "work"


def opening(guest: Guest) -> str:
    """Opens the file and publishes its first bytes; the handle is at `OUT + 4`."""
    return f"""
      (call $open {guest.text("file")} (i32.const {READ}) (i32.const {OUT}))
      (if (i32.load8_u (i32.const {OUT})) (then unreachable))
      (local.set $i (i32.load (i32.const {OUT + 4})))
      (call $read_at (local.get $i) (i64.const 0) (i32.const 100) (i32.const {OUT + 16}))
      (if (i32.load8_u (i32.const {OUT + 16})) (then unreachable))
      (call $publish {guest.text("said.read")}
        (i32.load (i32.const {OUT + 20})) (i32.load (i32.const {OUT + 24})))"""


def files(place: Path) -> list[str]:
    """The files below a folder that this process has open."""
    gc.collect()
    links = (os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd"))
    return [link for link in links if link.startswith(str(place)) and os.path.isfile(link)]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="the system does not tell which files are open")
@pytest.mark.parametrize(
    ("after", "ends"),
    [("(call $drop (local.get $i))", True), ("unreachable", True), ("", False)],
    ids=["drops", "traps", "keeps"],
)
async def test_a_file_is_open_as_long_as_its_handle(tmp_path: Path, work: Path, after: str, ends: bool) -> None:
    """It ends at once when the guest drops it or traps, and at the latest with its instance."""
    guest = Guest(OPEN, READ_AT, DROP)
    guest.handles(opening(guest) + after)
    capsule(tmp_path, "opener", guest, {"do.it": "act"}, ["said.*"], capabilities={"fs_read": ["cwd://"]})
    async with open_host([tmp_path / "opener"], state_dir=":memory:", workspace=work) as host:
        async with host.subscribe("said.*") as said, host.subscribe(SETTLED) as settled:
            host.publish("do.it", {}, settle=True)
            assert (await next_of(said)).payload == {"in": "the file"}
            await next_of(settled)
        assert not ends or files(work) == []
    assert files(work) == []


async def test_a_copy_that_takes_a_thread_answers_its_guest(tmp_path: Path, work: Path) -> None:
    guest = Guest(COPY)
    guest.handles(f"""
      (call $copy {guest.text("big")} {guest.text("copy")} (i32.const {OUT}))
      (if (i32.load8_u (i32.const {OUT})) (then unreachable))
      {guest.say("said.done", "{}")}""")
    rights = {"fs_read": ["cwd://"], "fs_write": ["cwd://"]}
    capsule(tmp_path, "copier", guest, {"do.it": "act"}, ["said.*"], capabilities=rights)
    async with open_host([tmp_path / "copier"], state_dir=":memory:", workspace=work) as host:
        async with host.subscribe("said.*") as said:
            host.publish("do.it", {})
            await next_of(said)
    assert (work / "copy").read_bytes() == (work / "big").read_bytes()
