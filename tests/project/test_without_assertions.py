"""`python -O` leaves out assertions, and nothing that the host does or checks with them."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import astrid_host

PACKAGE = Path(astrid_host.__file__).resolve().parent
SUPPORT = Path(__file__).resolve().parent.parent / "support"

SMOKE = f"""
import sys, tempfile; from pathlib import Path; import trio
sys.path.insert(0, {str(SUPPORT)!r})
from guests_in_wat import Guest, capsule, good, good_still_answers, hosted, report_of
from astrid_host import open_host
assert False, "assertions are left out here"
async def main():
    place = Path(tempfile.mkdtemp())
    try:
        async with open_host([good(place / "g").parent], state_dir=":memory:", workspace=place, allow_local=["nonsense"]):
            print("allow_local was not read")
    except ValueError as error:
        print("refused:", error)
    socket = '(import "astrid:sys/host@1.0.0" "get-config" (func $cfg (param i32 i32 i32)))'
    guest = Guest(socket)
    guest.handles(f"(call $cfg {{guest.text('ASTRID_SOCKET_PATH')}} (i32.const 1300))" + guest.say("a.said", '"told"'))
    capsule(place / "c", "asks", guest, {{"a.ask": "ask"}}, ["a.said"])
    bad = Guest().handles("(i32.store (i32.const 1024) (i32.const -1))")
    capsule(place / "c", "bad", bad, {{"b.ask": "act"}})
    good(place / "c")
    async with hosted(place / "c") as host:
        await good_still_answers(host)
        print("bad:", (await report_of(host, "b.ask"))["reason"])
        async with host.subscribe("a.said") as events:
            host.publish("a.ask", {{}})
            with trio.fail_after(10):
                print((await anext(events)).payload)
trio.run(main)
"""


def test_a_host_is_the_same_without_them(tmp_path: Path) -> None:
    command = [sys.executable, "-O", "-c", SMOKE]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[0].startswith("refused: allow_local: ")
    assert said[1:] == ["bad: guest-fault", "told"]


def test_no_assertion_does_any_work() -> None:
    """One only tells the type checker what is so anyway: it calls nothing but what looks at a type, and looks up no more than a
    name, a field or an item."""
    working = []
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Assert) and not _only_narrows(node):
                working.append(f"{file.relative_to(PACKAGE)}:{node.lineno}")
    assert working == [], "raise instead"


def _only_narrows(node: ast.Assert) -> bool:
    calls = [call for call in ast.walk(node.test) if isinstance(call, ast.Call)]
    looks = all(isinstance(call.func, ast.Name) and call.func.id == "isinstance" for call in calls)
    compares = isinstance(node.test, ast.Compare) and isinstance(node.test.ops[0], ast.IsNot)
    return looks and (isinstance(node.test, ast.Call) or compares)
