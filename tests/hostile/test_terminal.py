"""No text of a guest's, a manifest's or a model's does anything to a terminal; what is piped stays as it is."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
from guests_in_wat import Guest, capsule
from hypothesis import given
from hypothesis import strategies as st

from astrid_host.cli.terminal import _escaped, _is_harmless

LOG = '(import "astrid:sys/host@1.0.0" "log" (func $log (param i32 i32 i32)))'
# OSC 0 and 52 and 8, clearing, C1 forms of CSI and OSC, DEL, a return, direction overrides, an invisible tag.
ATTACKS = (
    "\x1b]0;OWNED\x07\x1b[2J\x1b]52;c;ZXZpbA==\x07\x1b]8;;http://e\x1b\\\x9b2J\x9d0;x\x9c\x7f\r\u202e\u2066\U000e0041"
)
BAD = [sign.encode() for sign in ATTACKS if not sign.isprintable()]
MAIN = "from astrid_host.cli import main; main()"


def at_a_terminal(code: str, *arguments: str, question: bytes = b"", seconds: float = 30) -> bytes:
    """All that a Python program writes to a terminal on which that question is answered with no."""
    pid, terminal = pty.fork()
    if not pid:
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "300"}
        os.execve(sys.executable, [sys.executable, "-c", code, *arguments], environment)
    written, until = b"", time.monotonic() + seconds
    try:
        while time.monotonic() < until and select.select([terminal], [], [], seconds)[0]:
            try:
                part = os.read(terminal, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            written += part
            if question and question in written:
                question = b""
                os.write(terminal, b"n\n")
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)
    return written.replace(b"\r\n", b"\n")  # the terminal's own line ends


def without_colours(written: bytes) -> bytes:
    return re.sub(rb"\x1b\[[0-9;]*m", b"", written)


def held(written: bytes) -> bool:
    return not [sign for sign in BAD if sign in without_colours(written)]


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_each_sign_is_looked_at_however_the_text_is_cut(stream: str) -> None:
    code = (
        "import sys; from astrid_host.cli.terminal import guard; guard()\n"
        f"for sign in {ATTACKS!r}: sys.{stream}.write(sign)\n"
        f"sys.{stream}.writelines([{ATTACKS!r}]); print({ATTACKS!r}, file=sys.{stream})\n"
    )
    written = at_a_terminal(code)
    assert held(written)
    assert b"\x1b" not in written
    assert written.count(b"OWNED") == 3


def test_text_in_any_script_stays_as_it_is() -> None:
    text = "ä 你好 עברית \u200d\U0001f468\u200d\U0001f469\ta\u00a0b"
    code = f"import sys; from astrid_host.cli.terminal import guard; guard(); print({text!r})"
    assert at_a_terminal(code).decode().strip("\n") == text


def test_json_on_a_terminal_is_still_that_json() -> None:
    value = {"text": ATTACKS, "x": "\U0010ffff\x85"}
    code = (
        "import sys, msgspec; from astrid_host.cli.terminal import guard; guard()\n"
        f"sys.stdout.write(msgspec.json.encode({value!r}).decode())"
    )
    written = at_a_terminal(code)
    assert held(written)
    assert json.loads(written) == value


def test_what_is_piped_stays_as_it_is() -> None:
    code = f"import sys; from astrid_host.cli.terminal import guard; guard(); sys.stdout.write({ATTACKS!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == ATTACKS.encode()


@given(st.text())
def test_what_is_escaped_is_printable(text: str) -> None:
    for sign in text:
        assert _is_harmless(sign) or _escaped(sign).isprintable()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capsule whose manifest, log and refusals have it all."""
    place = tmp_path_factory.mktemp("evil")
    (place / "work").mkdir()
    guest = Guest(LOG)
    guest.handles(
        f"(call $log (i32.const 4) {guest.text(ATTACKS)})"
        + guest.say(f"x.{ATTACKS[:20]}", "1")
        + guest.answer("deny", f"denied {ATTACKS}")
    )
    described = {"description": f"described {ATTACKS}"}
    tool = [{"name": "evil", "asks_approval": False, "description": ATTACKS}]
    rows = {"tool.v1.execute.evil": "x", "tool.v1.request.execute": "x"}
    capsule(place / "capsules", "evil", guest, rows, ["evil.said"], package=described, tool=tool)
    trusting = [sys.executable, "-c", MAIN, "trust", str(place / "capsules"), "--yes"]
    subprocess.run([*trusting, "--state-dir", str(place / "state")], capture_output=True, check=True)
    return place


@pytest.mark.parametrize(
    "command",
    [
        ("call", "evil"),
        ("call", "--debug", "evil"),
        ("call", ATTACKS),
        ("tools",),
        ("tools", "--json"),
        ("check",),
        ("audit",),
        ("publish", ATTACKS, "1"),
        ("config", "get", "evil", ATTACKS),
        (ATTACKS,),
    ],
    ids=lambda command: " ".join(command) if ATTACKS not in command else f"{command[0][:8]!r} with it",
)
def test_no_command_lets_it_through(command: tuple[str, ...], place: Path) -> None:
    name, *more = command
    state = ["--state-dir", str(place / "state")]
    boot = ["--no-bundled", "--capsules", str(place / "capsules"), "--workspace", str(place / "work")]
    options = {"call": [*boot, *state], "tools": [*boot, *state], "audit": state, "publish": state, "config": []}
    if name == "check":
        more = [str(place / "capsules/evil")]
    arguments = [name, *more, *options.get(name, [])]
    assert held(at_a_terminal(MAIN, *arguments))


def test_the_question_for_consent_lets_nothing_through(place: Path) -> None:
    boot = ["--no-bundled", "--capsules", str(place / "capsules"), "--workspace", str(place / "work")]
    written = at_a_terminal(MAIN, "call", "evil", *boot, "--state-dir", str(place / "new"), question=b"[y/N]")
    assert b"[y/N]" in written
    assert held(written)


def test_log_lines_keep_their_colours_and_nothing_else() -> None:
    code = (
        "import logging; from astrid_host.cli import logs; from astrid_host.cli.terminal import guard\n"
        "guard(); logs.set_up('pretty', 10)\n"
        f"try: raise ValueError({ATTACKS!r})\n"
        f"except ValueError: logging.getLogger('astrid_host.capsule.x').exception('a %s', {ATTACKS!r})\n"
    )
    written = at_a_terminal(code)
    assert held(written)
    assert b"\x1b[" in written
    assert written.count(b"OWNED") >= 2
