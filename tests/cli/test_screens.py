"""How a conversation is shown: each text once, nothing that moves the terminal, no line wider than it."""

from __future__ import annotations

import pytest

from astrid_host.cli.screens import JsonScreen, TextScreen, harmless, shortened
from astrid_host.payloads.kinds import ApprovalRequired

ASKED = ApprovalRequired("0b0f2a63-7c0f-4b58-8f0c-9d6c2f2f7a11", "run", "run x", "why")


@pytest.mark.parametrize(
    ("deltas", "final", "shown"),
    [
        (["Good ", "day"], "Good day", "Good day\n"),
        (["Good ", "day\n"], "Good day", "Good day\n"),
        ([], "Good day", "Good day\n"),
        (["Good "], "Good day", "Good day\n"),
        (["Good day"], "Stopped: enough.", "Good day\nStopped: enough.\n"),
        ([], "", ""),
        (["Let me look.", None, "It is so."], "It is so.", "Let me look.\nIt is so.\n"),
        (["Let me look.", None], "It is so.", "Let me look.\nIt is so.\n"),
        (["a", None, "b"], "ab", "a\nb\n"),
    ],
)
def test_the_final_text_is_shown_once(
    deltas: list[str | None], final: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = TextScreen()
    for _ in range(2):
        for text in deltas:
            if text is None:
                screen.tool_call("c", "x", {})
            else:
                screen.delta(text)
        screen.final(final)
        assert capsys.readouterr().out == shown


def test_what_hides_is_escaped_and_what_is_written_stays() -> None:
    assert (
        harmless("a\tb\nc\u00a0d \u200d\U0001f468\u200d\U0001f469") == "a\tb\nc\u00a0d \u200d\U0001f468\u200d\U0001f469"
    )
    assert harmless("\x1b[2J\r\x9b\u202e") == "\\x1b[2J\\r\\x9b\\u202e"


@pytest.mark.parametrize(
    ("text", "width", "line"),
    [
        ("a  b\n c", 10, "a b c"),
        ("0123456789", 10, "0123456789"),
        ("0123456789a", 10, "012345678…"),
        ("x" * 10_000, 5, "xxxx…"),
        ("日本語日本語", 6, "日本…"),
        ("\x1b", 10, "\\x1b"),
        ("", 10, ""),
        ("a\n" + "x" * 10_000, None, "a " + "x" * 10_000),
    ],
)
def test_a_line_is_no_wider_than_the_terminal(text: str, width: int | None, line: str) -> None:
    assert shortened(text, width) == line


def test_nothing_is_cut_where_no_terminal_is(capsys: pytest.CaptureFixture[str]) -> None:
    TextScreen().tool_result("c", "x" * 1000, False)
    assert capsys.readouterr().err == f"<- c: {'x' * 1000}\n"


def test_what_comes_while_a_question_waits_is_followed_by_the_question(capsys: pytest.CaptureFixture[str]) -> None:
    screen = TextScreen()
    with screen.question("Allow it? "):
        screen.tool_result("c", "done", False)
    screen.note("over")
    assert capsys.readouterr().err == "\nAllow it? \n<- c: done\nAllow it? astrid-host: over\n"


def test_a_question_that_is_left_ends_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), TextScreen().question("Allow it? "):
        raise KeyboardInterrupt
    assert capsys.readouterr().err == "\nAllow it? \n"


def test_a_decision_is_shown_unless_it_was_typed(capsys: pytest.CaptureFixture[str]) -> None:
    screen = TextScreen()
    screen.approval(ASKED, "approve", typed=True)
    screen.approval(ASKED, "approve_session", typed=False)
    assert capsys.readouterr().err == "?? approved for this session: run: run x\n"


def test_why_a_turn_failed_is_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    screen = TextScreen()
    screen.delta("I will")
    screen.final("LLM error: no", failed=True)
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("I will\n", "LLM error: no\n")
    JsonScreen().final("LLM error: no", failed=True)
    assert capsys.readouterr().out == '{"final":"LLM error: no","error":true}\n'


def test_an_answer_that_was_cut_off_is_told_as_that(capsys: pytest.CaptureFixture[str]) -> None:
    screen = TextScreen()
    screen.delta("First, delete all files but")
    screen.final("First, delete all files but", cut="length")
    shown = capsys.readouterr()
    assert shown.out == "First, delete all files but\n"
    assert "the answer is not whole: it was cut off" in shown.err
    JsonScreen().final("a", cut="content_filter")
    JsonScreen().final("why", failed=True, cut="length")
    lines = capsys.readouterr().out.splitlines()
    assert lines == ['{"final":"a","cut":"content_filter"}', '{"final":"why","error":true,"cut":"length"}']
