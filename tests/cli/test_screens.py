"""How a conversation is shown: each text once, nothing that moves the terminal, no line wider than it."""

from __future__ import annotations

import pytest

from astrid_host.cli.screens import TextScreen, harmless, shortened


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
    ],
)
def test_a_line_is_no_wider_than_the_terminal(text: str, width: int, line: str) -> None:
    assert shortened(text, width) == line
