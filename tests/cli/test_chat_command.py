"""`astrid-host chat`: real turns of the bundled agent with a server that speaks OpenAI's protocol, for scripts and for people."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import trio
from openai_server import (
    OpenAIServer,
    Script,
    by_results,
    calls,
    delta,
    endless,
    event,
    openai_server,
    refuses,
    says,
    sends,
    silent,
)
from running_hosts import until_it_listens

CHAT = [sys.executable, "-m", "astrid_host.cli", "chat"]
WRITE = {"file_path": "a.txt", "content": "hi\n"}
Chat: TypeAlias = Callable[..., Any]
MakeCapsule: TypeAlias = Callable[..., Path]


@pytest.fixture
def chat(surroundings: dict[str, str], tmp_path: Path) -> Chat:
    """`astrid-host chat` with these arguments and nobody at a terminal, until it ends."""
    (tmp_path / "work").mkdir()
    surroundings.pop("OPENAI_API_KEY", None)

    async def chat(*arguments: str, typed: str = "", **variables: str) -> subprocess.CompletedProcess[bytes]:
        return await trio.run_process(
            [*CHAT, *arguments],
            cwd=tmp_path / "work",
            env=surroundings | variables,
            stdin=typed.encode(),
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )

    return chat


class Person:
    """Somebody at a terminal in which the command runs."""

    def __init__(self, process: subprocess.Popen[bytes], terminal: int) -> None:
        self.process = process
        self.seen = ""
        self._terminal = terminal
        self._looked_at = 0

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    async def see(self, pattern: str) -> str:
        """Wait until that is shown, after what was waited for before; all that was shown until then."""
        with trio.move_on_after(20):
            while (found := re.compile(pattern, re.DOTALL).search(self.seen, self._looked_at)) is None:
                await trio.lowlevel.wait_readable(self._terminal)
                try:
                    self.seen += os.read(self._terminal, 1 << 16).decode()
                except OSError as ended:
                    raise AssertionError(f"it ended before it showed {pattern!r}: {self.seen}") from ended
        assert found is not None, f"{pattern!r} is not shown, but {self.seen[self._looked_at :]!r}"
        before, self._looked_at = self._looked_at, found.end()
        return self.seen[before : found.end()]

    async def ends(self) -> int:
        with trio.fail_after(10):
            return await trio.to_thread.run_sync(self.process.wait, abandon_on_cancel=True)


@asynccontextmanager
async def at_terminal(
    server: OpenAIServer, surroundings: dict[str, str], workspace: Path, *more: str
) -> AsyncIterator[Person]:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*CHAT, "--provider-url", server.url, *more],
        cwd=workspace,
        env=surroundings | {"TERM": "dumb", "COLUMNS": "100"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    before = termios.tcgetattr(ours)
    try:
        yield Person(process, ours)
        assert termios.tcgetattr(ours) == before, "the terminal is not left as it was"
    finally:
        process.kill()
        process.wait()
        os.close(theirs)
        os.close(ours)


def objects(done: subprocess.CompletedProcess[bytes]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


async def left(server: OpenAIServer) -> None:
    """Wait until the provider was told to speak no more."""
    with trio.fail_after(5):
        while server.left < len(server.asked):
            await trio.sleep(0.01)


def writes(*then: str) -> Script:
    """Text, then two tools at once, then text."""
    return by_results(
        calls(("list_directory", {"dir_path": "."}), ("write_file", WRITE), before=["Let me ", "look."]), says(*then)
    )


# For scripts.


@pytest.mark.parametrize("ending", ["", "/", "/v1", "/v1/"])
async def test_one_prompt_is_answered_on_stdout(chat: Chat, ending: str) -> None:
    async with openai_server(says("Good ", "day\n", "to you")) as server:
        done = await chat("--once", "hello", "--provider-url", server.url + ending, "--model", "test")
    assert (done.stdout, done.stderr, done.returncode) == (b"Good day\nto you\n", b"", 0)
    assert server.asked[0].last["content"] == "hello"
    assert server.asked[0].body["model"] == "test"


async def test_tool_calls_are_shown_on_stderr_and_what_needs_approval_is_denied(chat: Chat, tmp_path: Path) -> None:
    async with openai_server(writes("It is ", "so.")) as server:
        done = await chat("--once", "x", "--provider-url", server.url)
    assert (done.stdout, done.returncode) == (b"Let me look.\nIt is so.\n", 0)
    told = done.stderr.decode()
    assert '-> list_directory {"dir_path":"."}\n' in told
    assert "<- write_file failed: Denied" in told
    assert "--yes" in told
    assert "astrid-host approvals allow gatekeeper write_file\n" in told
    assert not (tmp_path / "work" / "a.txt").exists()


async def test_json_has_an_object_a_line_and_the_final_text_last(chat: Chat, tmp_path: Path) -> None:
    async with openai_server(writes("It is ", "so.")) as server:
        done = await chat("--once", "x", "--json", "--yes", "--provider-url", server.url)
    assert (done.stderr, done.returncode) == (b"", 0)
    lines = objects(done)
    kinds = [next(iter(line)) for line in lines if "delta" not in line]
    assert kinds[:2] == ["tool_call", "tool_call"]
    assert sorted(kinds[2:-1]) == ["approval", "tool_result", "tool_result"]
    assert lines[-1] == {"final": "It is so."}
    assert "".join(line["delta"] for line in lines if "delta" in line) == "Let me look.It is so."
    called = [line["tool_call"] for line in lines if "tool_call" in line]
    results = {line["tool_result"]["call_id"]: line["tool_result"] for line in lines if "tool_result" in line}
    assert [(call["name"], call["arguments"]) for call in called] == [
        ("list_directory", {"dir_path": "."}),
        ("write_file", WRITE),
    ]
    assert results.keys() == {call["call_id"] for call in called}
    assert not any(result["is_error"] for result in results.values())
    (approval,) = (line["approval"] for line in lines if "approval" in line)
    assert (approval["action"], approval["decision"]) == ("write_file", "approve")
    assert set(approval) == {"request_id", "action", "resource", "reason", "decision"}
    assert (tmp_path / "work" / "a.txt").read_text() == "hi\n"


async def test_each_line_of_stdin_is_a_prompt_of_one_session(chat: Chat) -> None:
    async with openai_server(says("yes")) as server:
        done = await chat("--provider-url", server.url, typed="one\n\n  \ntwo")
    assert (done.stdout, done.stderr, done.returncode) == (b"yes\nyes\n", b"", 0)
    assert [message["content"] for message in server.asked[-1].messages[-3:]] == ["one", "yes", "two"]


async def test_every_chat_begins_anew_unless_a_session_is_named(chat: Chat) -> None:
    async with openai_server(says("yes")) as server:
        for session in ([], [], ["--session", "mine"], ["--session", "mine"]):
            await chat("--once", "x", "--provider-url", server.url, *session)
    users = [sum(message["role"] == "user" for message in asked.messages) for asked in server.asked]
    assert users == [1, 1, 1, 2]


async def test_no_answer_in_time_is_told(chat: Chat) -> None:
    async with openai_server(silent()) as server:
        once = ("--once", "x", "--timeout", "1", "--provider-url", server.url)
        done = await chat(*once)
        as_json = await chat(*once, "--json")
    assert (done.stdout, done.returncode) == (b"", 1)
    assert b"no final answer came within 1 s" in done.stderr
    assert (objects(as_json), as_json.returncode) == ([{"final": None, "error": "timeout"}], 1)


async def test_a_failure_of_the_provider_is_told_and_is_a_failure(chat: Chat) -> None:
    async with openai_server(refuses(400, "no such thing")) as server:
        done = await chat("--once", "x", "--provider-url", server.url)
        as_json = await chat("--once", "x", "--json", "--provider-url", server.url)
    assert (done.stdout, done.returncode) == (b"", 1)
    assert b"no such thing" in done.stderr
    last = objects(as_json)[-1]
    assert (last["error"], as_json.returncode) == (True, 1)
    assert "no such thing" in last["final"]


async def test_the_key_is_that_of_the_environment_unless_one_was_set(chat: Chat, surroundings: dict[str, str]) -> None:
    async with openai_server(says("yes")) as server:
        once = ("--once", "x", "--provider-url", server.url)
        await chat(*once)
        await chat(*once, OPENAI_API_KEY="sk-environment")
        setting = [sys.executable, "-m", "astrid_host.cli", "config", "set", "openai-compat.api_key"]
        await trio.run_process(setting, env=surroundings, stdin=b"sk-that-was-set\n", capture_stdout=True)
        await chat(*once, OPENAI_API_KEY="sk-environment")
    keys = [asked.headers.get("authorization") for asked in server.asked]
    assert keys == [None, "Bearer sk-environment", "Bearer sk-that-was-set"]


async def test_without_an_agent_it_says_what_is_missing(chat: Chat, capsule: MakeCapsule) -> None:
    done = await chat("--once", "x", "--no-bundled", "--capsules", str(capsule("mine")))
    assert (done.stdout, done.returncode) == (b"", 3)
    assert b"no loaded capsule takes prompts (user.v1.prompt); loaded are: mine." in done.stderr


@pytest.mark.parametrize(
    "given",
    [
        ("--provider-url", "localhost:11434"),
        ("--provider-url", "ftp://localhost"),
        ("--provider-url", "http://"),
        ("--provider-url", "http://x:y"),
        ("--provider-url", "http://a b"),
        ("--timeout", "0"),
        ("--timeout", "nan"),
        ("--once", " "),
        ("--session", ""),
    ],
)
async def test_what_cannot_be_is_wrong_usage(chat: Chat, given: tuple[str, str]) -> None:
    done = await chat(*given)
    assert (done.stdout, done.returncode) == (b"", 2)
    assert given[0].encode() in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
async def test_an_interrupted_prompt_of_a_script_is_cancelled(
    surroundings: dict[str, str], tmp_path: Path, number: signal.Signals, code: int
) -> None:
    async with openai_server(endless(per_second=100)) as server:
        process = subprocess.Popen(
            [*CHAT, "--once", "x", "--provider-url", server.url],
            cwd=tmp_path,
            env=surroundings,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            await trio.to_thread.run_sync(process.stdout.read, 1)
            process.send_signal(number)
            with trio.fail_after(10):
                await trio.to_thread.run_sync(process.communicate, abandon_on_cancel=True)
            await left(server)
        finally:
            process.kill()
            process.wait()
    assert process.returncode == code


# For people.


async def test_a_person_talks_approves_and_leaves(surroundings: dict[str, str], tmp_path: Path) -> None:
    async with openai_server(writes("It is ", "so.")) as server:
        async with at_terminal(server, surroundings, tmp_path) as person:
            await person.see("Ctrl-C ends a turn.*> ")
            person.type("go on\n")
            await person.see('Let me look.\r\n.*-> write_file {"file_path":"a.txt"')
            await person.see("requests approval: write_file.*anything else denies: ")
            person.type("y\n")
            assert "approve" not in await person.see("<- write_file: .*It is so.\r\n.*> ")  # they know what they typed
            assert (tmp_path / "a.txt").read_text() == "hi\n"
            person.type("again\n")
            await person.see("anything else denies: ")
            person.type("n\n")
            await person.see("<- write_file failed: Denied.*It is so.\r\n.*> ")
            person.type("\x04")
            assert await person.ends() == 0


async def test_ctrl_c_ends_the_turn_and_a_second_one_leaves(surroundings: dict[str, str], tmp_path: Path) -> None:
    async with openai_server(endless(per_second=100)) as server:
        async with at_terminal(server, surroundings, tmp_path) as person:
            await person.see("> ")
            person.type("speak\n")
            await person.see("on and on")
            person.type("\x03")
            await person.see("\n> ")
            await left(server)
            server.script = says("Good day")
            person.type("and now\n")
            await person.see("Good day\r\n.*> ")
            person.type("\x03")
            assert await person.ends() == 0


async def test_ctrl_c_while_a_person_is_asked_ends_the_turn(surroundings: dict[str, str], tmp_path: Path) -> None:
    async with openai_server(writes("never")) as server:
        async with at_terminal(server, surroundings, tmp_path) as person:
            await person.see("> ")
            person.type("write\n")
            await person.see("anything else denies: ")
            person.type("\x03")
            await person.see("\n> ")
            server.script = says("Good day")
            person.type("y\n")  # is no answer to what was asked before
            await person.see("Good day\r\n.*> ")
            assert server.asked[-1].last["content"] == "y"
            assert not (tmp_path / "a.txt").exists()
            person.type("\x04")
            assert await person.ends() == 0


async def test_what_a_person_allowed_for_longer_is_not_asked_again(
    surroundings: dict[str, str], tmp_path: Path
) -> None:
    names = ("a.txt", "b.txt", "c.txt")
    script = by_results(calls(*(("write_file", WRITE | {"file_path": name}) for name in names)), says("It is so."))
    async with openai_server(script) as server:
        async with at_terminal(server, surroundings, tmp_path) as person:
            await person.see("> ")
            person.type("write\n")
            await person.see("anything else denies: ")
            person.type("s\n")
            shown = await person.see("It is so.\r\n.*> ")
            assert "anything else denies" not in shown
            assert all((tmp_path / name).exists() for name in names)
            person.type("\x04")
            assert await person.ends() == 0


async def test_the_end_of_the_input_at_a_question_denies_and_ends_the_line(
    surroundings: dict[str, str], tmp_path: Path
) -> None:
    async with openai_server(writes("It is so.")) as server:
        async with at_terminal(server, surroundings, tmp_path, "--once", "x") as person:
            await person.see("anything else denies: ")
            person.type("\x04")
            shown = await person.see("<- write_file failed: Denied.*It is so.\r\n")
            assert shown.startswith("\r\n<- ")
            assert await person.ends() == 0


async def test_nothing_that_is_said_moves_the_terminal(surroundings: dict[str, str], tmp_path: Path) -> None:
    evil = "\x1b[2J\x1b]0;title\x07"
    script = by_results(calls(("word_count", {"text": evil}), ("no\x1b[2J", {})), says(f"a {evil} b"))
    async with openai_server(script) as server:
        async with at_terminal(server, surroundings, tmp_path) as person:
            await person.see("> ")
            person.type("x\n")
            shown = await person.see(r"a \\x1b\[2J\\x1b\]0;title\\x07 b\r\n.*> ")
            assert "\x1b[2J" not in shown
            assert "\x07" not in shown
            person.type("\x04")
            assert await person.ends() == 0


# With a host that runs.


async def test_a_host_that_runs_answers_and_one_that_dies_is_told(
    surroundings: dict[str, str], tmp_path: Path, chat: Chat, start: Any
) -> None:
    async with openai_server(says("from the host")) as server:
        state = ("--state-dir", str(tmp_path / "state"))
        await chat_config(surroundings, *state, "openai-compat.base_url", server.url)
        running = start("run", *state, "--allow-local", server.address)
        await trio.to_thread.run_sync(until_it_listens, running)
        done = await chat("--once", "x", "--json", *state, OPENAI_API_KEY="sk-of-the-chat")
        assert (objects(done)[-1], done.returncode) == ({"final": "from the host"}, 0)
        assert b"OPENAI_API_KEY is not used: the host that runs was started without it" in done.stderr
        server.script = silent()
        async with trio.open_nursery() as nursery:

            async def talk() -> None:
                nonlocal done
                done = await chat("--once", "x", *state)

            nursery.start_soon(talk)
            with trio.fail_after(20):
                while len(server.asked) < 2:
                    await trio.sleep(0.01)
            running.kill()
        assert done.returncode == 3
        assert b"the host that runs has stopped, or was killed" in done.stderr
        assert len(done.stderr.splitlines()) == 1


async def test_a_host_that_runs_has_the_key_of_its_environment(
    surroundings: dict[str, str], tmp_path: Path, chat: Chat, start: Any
) -> None:
    async with openai_server(says("yes")) as server:
        state = ("--state-dir", str(tmp_path / "state"))
        await chat_config(surroundings, *state, "openai-compat.base_url", server.url)
        surroundings["OPENAI_API_KEY"] = "sk-environment"
        running = start("run", *state, "--allow-local", server.address)
        await trio.to_thread.run_sync(until_it_listens, running)
        done = await chat("--once", "x", *state)
        assert (done.stdout, done.stderr, done.returncode) == (b"yes\n", b"", 0)
    assert server.asked[-1].headers.get("authorization") == "Bearer sk-environment"


async def chat_config(surroundings: dict[str, str], *arguments: str) -> None:
    command = [sys.executable, "-m", "astrid_host.cli", "config", "set", *arguments]
    await trio.run_process(command, env=surroundings, capture_stdout=True)


@pytest.mark.parametrize("reason", ["length", "content_filter", "error", "MAX_TOKENS"])
async def test_the_last_line_says_how_an_answer_was_cut_off(chat: Chat, reason: str) -> None:
    pieces = event(delta({"content": "First, delete all but"})), event(delta({}, reason)), b"data: [DONE]\n\n"
    async with openai_server(sends(*pieces)) as server:
        done = await chat("--once", "x", "--json", "--provider-url", server.url, "--model", "test")
    cut = "length" if reason == "MAX_TOKENS" else reason
    assert json.loads(done.stdout.splitlines()[-1]) == {"final": "First, delete all but", "cut": cut}
    assert done.returncode == 0


async def test_a_base_with_a_path_of_its_own_is_asked_there(chat: Chat) -> None:
    async with openai_server(says("Hello.")) as server:
        done = await chat("--once", "x", "--provider-url", f"{server.url}/api/paas/v4?key=1", "--model", "test")
    assert done.stdout == b"Hello.\n"
    assert "/api/paas/v4/chat/completions?key=1" in server.paths
