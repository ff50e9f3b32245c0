"""`astrid-host call`: prints the result of one tool call; exit 1 when it is an error, 2 for wrong usage, 3 without a host."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

Astrid: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]
Start: TypeAlias = Callable[..., subprocess.Popen[str]]
MakeCapsule: TypeAlias = Callable[..., Path]


def test_the_result_is_printed_as_the_tool_gave_it(astrid: Astrid) -> None:
    done = astrid("call", "word_count", '{"text":"a b\\nc"}')
    assert (done.stdout, done.stderr, done.returncode) == ('{"words":3,"characters":5,"lines":2}\n', "", 0)


def test_a_name_that_is_none_is_refused_by_the_router(astrid: Astrid) -> None:
    done = astrid("call", "foo.bar", "{}")
    assert (done.stdout, done.stderr, done.returncode) == ("Invalid tool name: foo.bar\n", "", 1)


def test_a_tool_that_nobody_provides_is_answered_at_once(astrid: Astrid) -> None:
    begun = time.monotonic()
    done = astrid("call", "no_such_tool", "{}")
    assert done.stdout == "No capsule provides a tool named no_such_tool.\n"
    assert done.returncode == 1
    assert time.monotonic() - begun < 10, "it waited for a result that nobody gives"


def test_without_a_router_the_answer_says_so(astrid: Astrid) -> None:
    done = astrid("call", "word_count", "{}", "--no-bundled")
    assert "router" in done.stdout
    assert done.returncode == 1


@pytest.mark.parametrize("arguments", ['{"text":', "NaN", '"\\ud800"', "[" * 100_000])
def test_arguments_that_are_not_json_are_wrong_usage(astrid: Astrid, arguments: str) -> None:
    done = astrid("call", "word_count", arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("astrid-host: the arguments are not JSON")
    assert "expected an object such as '{}'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("arguments", ["[1]", "null", '"text"', "7"])
def test_arguments_that_are_no_object_are_wrong_usage(astrid: Astrid, arguments: str) -> None:
    done = astrid("call", "word_count", arguments)
    assert (done.stdout, done.returncode) == ("", 2)
    assert done.stderr == (
        f"astrid-host: the arguments are no JSON object: given {arguments!r}, expected one such as '{{}}'\n"
    )


@pytest.mark.parametrize("seconds", ["0", "-1", "nan"])
def test_a_timeout_is_more_than_nothing(astrid: Astrid, seconds: str) -> None:
    done = astrid("call", "word_count", "{}", "--timeout", seconds)
    assert done.returncode == 2
    assert "--timeout must be more than 0 seconds" in done.stderr


def test_a_principal_is_checked_before_anything_runs(astrid: Astrid) -> None:
    done = astrid("call", "word_count", "{}", "--principal", "no such/one")
    assert done.returncode == 2
    assert "'no such/one' is no principal" in done.stderr


def test_a_tool_that_computes_for_ever_is_answered_after_the_timeout(astrid: Astrid, capsule: MakeCapsule) -> None:
    rows = '[subscribe]\n"tool.v1.execute.spin" = { wit = "opaque", handler = "tool_execute_spin" }\n'
    given = capsule("spinner", rows, "spinner")
    begun = time.monotonic()
    done = astrid("call", "spin", "{}", "--yes", "--timeout", "0.3", "--capsules", given)
    assert done.stdout == "spin did not answer within 0.3 s.\n"
    assert done.returncode == 1
    assert time.monotonic() - begun < 10, "the host waited for the guest when it stopped"


def test_an_interrupted_call_leaves_without_a_traceback(start: Start, capsule: MakeCapsule) -> None:
    """The log line of a capsule that does not load says that the host is under way."""
    rows = '[subscribe]\n"tool.v1.execute.spin" = { wit = "opaque", handler = "tool_execute_spin" }\n'
    (capsule("broken") / "guest.wasm").write_bytes(b"not wasm")
    process = start("call", "spin", "--yes", "--capsules", capsule("spinner", rows, "spinner").parent)
    assert process.stderr is not None
    assert "broken" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    said, logged = process.communicate(timeout=30)
    assert (said, logged, process.returncode) == ("", "", 130)


def test_each_principal_has_its_own_notes_and_they_outlive_the_process(astrid: Astrid, tmp_path: Path) -> None:
    state = ("--state-dir", tmp_path / "state")
    for who in ("alice", "bob"):
        saved = astrid("call", "note_save", f'{{"key":"k","text":"of {who}"}}', "--yes", "--principal", who, *state)
        assert saved.returncode == 0, saved.stdout
    read = {who: astrid("call", "note_read", '{"key":"k"}', "--principal", who, *state) for who in ("alice", "carol")}
    assert "of alice" in read["alice"].stdout
    assert "bob" not in read["alice"].stdout
    assert read["carol"].returncode == 1, "a principal that saved nothing has no notes"


def test_capsules_see_the_workspace_that_was_named_and_nothing_above_it(astrid: Astrid, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "hello.txt").write_text("good day\n", "utf-8")
    (tmp_path / "secret.txt").write_text("nobody's business\n", "utf-8")
    work = ("--workspace", tmp_path / "work")
    assert "good day" in astrid("call", "read_file", '{"file_path":"hello.txt"}', *work).stdout
    denied = astrid("call", "read_file", '{"file_path":"../secret.txt"}', *work)
    assert denied.returncode == 1
    assert "nobody's business" not in denied.stdout


def test_what_changes_things_needs_approval_and_the_denial_names_the_way_out(astrid: Astrid, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    arguments = ("write_file", '{"file_path":"a.txt","content":"hi"}', "--workspace", tmp_path / "work")
    done = astrid("call", *arguments)
    assert (done.stdout, done.returncode) == (
        "Denied: the gatekeeper asked for approval of write_file, and it was not given.\n",
        1,
    )
    assert "give --yes" in done.stderr
    assert "astrid-host approvals allow gatekeeper write_file" in done.stderr
    assert not (tmp_path / "work" / "a.txt").exists()
    done = astrid("call", *arguments, "--yes")
    assert (done.stderr, done.returncode) == ("", 0)
    assert (tmp_path / "work" / "a.txt").read_text("utf-8") == "hi"
