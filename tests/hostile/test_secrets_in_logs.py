"""A secret that a guest knows stands in no log, no report, no question and not in the state folder, in whatever spelling."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from guests_in_wat import FAILED, Guest, capsule, next_of

from astrid_host import open_host
from astrid_host.stores.redaction import Redactor, redacted_logs

SECRET = "sk-VERY/SECRET+0123456789"
CONFIG = '(import "astrid:sys/host@1.0.0" "get-config" (func $cfg (param i32 i32 i32)))'
LOG = '(import "astrid:sys/host@1.0.0" "log" (func $log (param i32 i32 i32)))'
APPROVE = '(import "astrid:approval/host@1.0.0" "request-approval" (func $app (param i32 i32 i32 i32 i32)))'


class Lines(logging.Handler):
    """What a program that embeds the host gets to see."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text += self.format(record) + "\n"


@pytest.fixture
def lines() -> Iterator[Lines]:
    made = Lines()
    logger = logging.getLogger("astrid_host")
    level = logger.level
    logger.addHandler(made)
    logger.setLevel(logging.DEBUG)
    yield made
    logger.removeHandler(made)
    logger.setLevel(level)


async def test_what_a_guest_does_with_a_secret_leaves_it_in_no_log_and_no_report(tmp_path: Path, lines: Lines) -> None:
    guest = Guest(CONFIG, LOG, APPROVE)
    got = "(i32.load (i32.const 1308)) (i32.load (i32.const 1312))"
    guest.handles(
        f"(call $cfg {guest.text('KEY')} (i32.const 1300))"
        + guest.when("log", f"(call $log (i32.const 3) {got})")
        + guest.when("ask", f"(call $app {guest.text('x')} {got} (i32.const 1400))")
        + guest.when("publish", f"(call $publish {got} (i32.const 2048) (i32.const 4))")
        + f"(call $answer {guest.text('deny')} {got})"
    )
    actions = ("log", "ask", "publish", "deny")
    rows = {f"l.{action}": action for action in actions}
    capsule(tmp_path / "capsules", "leaky", guest, rows, ["z.z"], env={"KEY": {"type": "secret"}})
    (tmp_path / "work").mkdir()
    state = tmp_path / "state"
    options = {"state_dir": state, "workspace": tmp_path / "work", "config": {"leaky": {"KEY": SECRET}}}
    async with open_host([tmp_path / "capsules"], **options) as host:  # type: ignore[arg-type]
        for action in actions:
            async with host.subscribe(f"{FAILED}l.{action}") as reports:
                host.publish(f"l.{action}", {})
                report = (await next_of(reports)).payload
            assert SECRET not in report["detail"]
            assert "***" in report["detail"]
    assert lines.text.count("***") >= 4
    assert SECRET not in lines.text
    assert all(SECRET.encode() not in file.read_bytes() for file in state.rglob("*") if file.is_file())


async def test_the_question_to_a_person_has_no_secret_and_its_answer_is_not_kept(tmp_path: Path) -> None:
    guest = Guest(CONFIG, APPROVE)
    got = "(i32.load (i32.const 1308)) (i32.load (i32.const 1312))"
    key = f"(call $cfg {guest.text('KEY')} (i32.const 1300))"
    guest.handles(f"{key} (call $app {guest.text('run')} {got} (i32.const 1400))" + guest.say("l.done", "1"))
    capsule(tmp_path, "leaky", guest, {"l.ask": "ask"}, ["l.done"], env={"KEY": {"type": "secret"}})
    options = {"state_dir": ":memory:", "workspace": tmp_path, "config": {"leaky": {"KEY": SECRET}}}
    async with open_host([tmp_path], **options) as host:  # type: ignore[arg-type]
        async with host.subscribe("astrid.v1.approval") as questions, host.subscribe("l.done") as done:
            for _ in range(2):
                host.publish("l.ask", {})
                asked = (await next_of(questions)).payload
                assert (asked["action"], asked["resource"]) == ("run", "***")
                answer = {"type": "approval_response", "request_id": asked["request_id"], "decision": "approve_always"}
                host.publish(f"astrid.v1.approval.response.{asked['request_id']}", answer)
                await next_of(done)


SPELLINGS = [
    SECRET,
    quote(SECRET, safe=""),
    quote(SECRET, safe="").lower().replace("sk-very", "sk-VERY").replace("secret", "SECRET"),
    "".join(f"%{byte:02x}" for byte in SECRET.encode()),
    "%73k-VERY%2fSECRET%2b0123456789",
    "".join(f"\\u{ord(sign):04x}" for sign in SECRET),
    json.dumps(SECRET).replace("/", "\\/"),
    base64.b64encode(SECRET.encode()).decode(),
    base64.urlsafe_b64encode(b"user:" + SECRET.encode()).decode(),
    SECRET.encode().hex(),
    SECRET[:9] + "\n" + SECRET[9:],
    SECRET[:9] + "\\n    " + SECRET[9:],
    "\n".join(base64.b64encode(SECRET.encode()).decode()[at : at + 10] for at in range(0, 40, 10)),
    " ".join(SECRET),
]


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("before", ["", "before ", "x" * 20_000 + " "], ids=["alone", "in a text", "far in a text"])
def test_a_secret_is_found_in_any_spelling(spelling: str, before: str) -> None:
    redactor = Redactor()
    redactor.hide([SECRET])
    assert redactor.whole(f"{before}{spelling} after") == f"{before}*** after".replace('"***"', "***") or (
        "***" in redactor.whole(f"{before}{spelling} after") and "0123456789" not in redactor.whole(spelling)
    )


@pytest.mark.parametrize("text", ["", "plain text", "a%20b c\\n d+e", "100 % of %zz \\u12 \\", "sk-VERY", "x\n" * 1000])
def test_other_texts_stay_as_they_are(text: str) -> None:
    redactor = Redactor()
    redactor.hide([SECRET])
    assert redactor.whole(text) == text


def test_each_line_of_a_key_of_several_is_a_secret() -> None:
    redactor = Redactor()
    redactor.hide(["-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG\nAAAABBBBCCCCDDDDEEEE\n"])
    assert redactor.whole("it said AAAABBBBCCCCDDDDEEEE.") == "it said ***."


def test_a_traceback_and_a_secret_that_comes_later_are_redacted_too(lines: Lines) -> None:
    redactor, log = Redactor(), logging.getLogger("astrid_host.some.room")
    with redacted_logs(redactor):
        redactor.hide([SECRET])
        try:
            try:
                raise OSError(f"first {SECRET}")
            except OSError as error:
                raise ValueError(f"then {quote(SECRET, safe='')}") from error
        except ValueError:
            log.exception("failed with %s", SECRET)
        logging.getLogger("somebody.else").warning(SECRET)
    assert SECRET not in lines.text
    assert quote(SECRET, safe="") not in lines.text
    assert "ValueError: then ***" in lines.text
    lines.text = ""
    log.warning("%s is another program's by now", SECRET)
    assert SECRET in lines.text
