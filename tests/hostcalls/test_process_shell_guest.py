"""The bundled guest `shell`: its tools run what was approved, and nothing else; jobs in the background outlive their calls."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from processes import family, gone

from astrid_host import BUNDLED, Host, open_host

ASKED, ANSWERS = "astrid.v1.approval", "astrid.v1.approval.response."


class Person:
    """Whoever is asked. Approves everything that has no `forbidden` in it.

    Attributes:
        asked: (action, resource) of each question.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    async def answer(self, host: Host, *, task_status: trio.TaskStatus[None]) -> None:
        async with host.subscribe(ASKED) as questions:
            task_status.started()
            async for question in questions:
                payload: Any = question.payload
                self.asked.append((payload["action"], payload["resource"]))
                decision = "deny" if "forbidden" in payload["resource"] else "approve"
                response = {"type": "approval_response", "request_id": payload["request_id"], "decision": decision}
                host.publish(ANSWERS + payload["request_id"], response, principal=question.principal)


@asynccontextmanager
async def shell(work: Path) -> AsyncIterator[tuple[Host, Person]]:
    """A host with the bundled capsules, and somebody who answers."""
    person = Person()
    folders = [BUNDLED / name for name in ("router", "dead-letter", "shell")]
    async with (
        open_host(folders, trust=True, state_dir=":memory:", workspace=work, strict=True) as host,
        trio.open_nursery() as nursery,
    ):
        await nursery.start(person.answer, host)
        yield host, person
        nursery.cancel_scope.cancel()


async def run(host: Host, command: str, **more: Any) -> tuple[str, bool]:
    """`run_shell_command`: the content, and whether it is an error."""
    result = await host.tools.execute("run_shell_command", {"command": command}, **{"timeout": 20, **more})
    return (result.content if result.is_error else json.loads(result.content)), result.is_error


async def do(host: Host, tool: str, **arguments: Any) -> Any:
    """What a tool call returns that ends well; a guest in Rust returns texts as JSON."""
    result = await host.tools.execute(tool, arguments, timeout=20)
    assert not result.is_error, result.content
    return json.loads(result.content)


async def test_the_tools_that_change_something_say_so(tmp_path: Path) -> None:
    async with shell(tmp_path) as (host, _):
        tools = {tool.name: tool for tool in await host.tools.describe()}
        assert {name: tool.mutable for name, tool in tools.items() if tool.capsule == "shell"} == {
            "run_shell_command": True,
            "spawn_background_process": True,
            "read_process_logs": False,
            "kill_process": True,
        }
        assert list(tools["kill_process"].input_schema["properties"]) == ["id"]


async def test_a_command_runs_in_the_workspace_once_it_is_approved(tmp_path: Path) -> None:
    async with shell(tmp_path) as (host, person):
        assert await run(host, "  echo one > a; cat a; pwd\n") == (f"one\n{tmp_path}\n", False)
        assert await run(host, "git --version > /dev/null; echo out; echo err >&2") == ("out\n[stderr]\nerr\n", False)
        assert await run(host, "git status > /dev/null 2>&1 || true") == ("", False)
        assert person.asked == [
            ("echo", "echo one > a; cat a; pwd"),
            ("git", "git --version > /dev/null; echo out; echo err >&2"),
            ("git status", "git status > /dev/null 2>&1 || true"),
        ]


LINES = {
    "two lines": ("echo a\necho b", "a\nb\n"),
    "here-document": ("cat <<'EOF'\nhello\n  you\nEOF", "hello\n  you\n"),
    "tab": ("printf 'a\tb'", "a\tb"),
    "joined emoji": ("echo \U0001f469\u200d\U0001f4bb", "\U0001f469\u200d\U0001f4bb\n"),
    "many characters": ("echo " + "x" * 5000, "x" * 5000 + "\n"),
    "many lines": ("\n".join(f"echo {n}" for n in range(300)), "".join(f"{n}\n" for n in range(300))),
    "a line continued": ("echo a \\\n  b", "a b\n"),
}


async def test_a_command_of_any_shape_is_approved_as_it_is_and_runs(tmp_path: Path) -> None:
    async with shell(tmp_path) as (host, person):
        for command, said in LINES.values():
            assert await run(host, command) == (said, False)
            assert person.asked.pop()[1] == command


async def test_a_command_that_is_not_approved_does_not_run(tmp_path: Path) -> None:
    async with shell(tmp_path) as (host, person):
        content, is_error = await run(host, "touch forbidden")
        assert (content, is_error) == ("It was not approved to run: touch forbidden", True)
        result = await host.tools.execute("spawn_background_process", {"command": "touch forbidden"}, timeout=20)
        assert result.is_error
        assert await run(host, " ") == ("The command is empty.", True)
        assert len(person.asked) == 2
        assert not list(tmp_path.iterdir())


async def test_a_command_that_fails_says_how(tmp_path: Path) -> None:
    async with shell(tmp_path) as (host, _):
        assert await run(host, "echo oh >&2; exit 3") == ("Command failed (exit code 3): oh\n", True)
        assert await run(host, "kill -9 $$") == ("Command failed (signal 9).", True)
        content, is_error = await run(host, "no-such-command")
        assert is_error
        assert content.startswith("Command failed (exit code 127): ")


async def test_of_a_jobs_output_the_newest_lines_are_read_where_a_limit_is_given(tmp_path: Path) -> None:
    async with shell(tmp_path) as (host, _):
        write = "seq 5; printf 'a\\nb' >&2; touch done; sleep 86483"
        assert await do(host, "spawn_background_process", command=write) == 1
        assert await run(host, "until [ -e done ]; do sleep 0.01; done") == ("", False)
        read = await do(host, "read_process_logs", id=1, limit=2.0)
        assert read == "[3 lines were left out]\n4\n5\n[stderr]\na\nb\nIt is running."
        assert await do(host, "read_process_logs", id=1, limit=2) == "It wrote nothing more. It is running."


@pytest.mark.parametrize("character", ["x", '"', "\\x01", "\\\\"])
async def test_output_without_end_fits_into_a_result(tmp_path: Path, character: str) -> None:
    async with shell(tmp_path) as (host, _):
        content, is_error = await run(host, f"head -c 3000000 /dev/zero | tr '\\0' '{character}'; echo; echo end")
        assert not is_error
        assert re.match(r"\[\d+ bytes were (left out|dropped)\]\n", content)
        assert content.endswith("\nend\n")


async def test_a_job_in_the_background_outlives_its_call(tmp_path: Path) -> None:
    async with shell(tmp_path) as (host, person):
        number = await do(
            host, "spawn_background_process", command="echo begun; until [ -e go ]; do sleep 0.01; done; exit 2"
        )
        other = await do(host, "spawn_background_process", command="sleep 86481")
        assert (number, other) == (1, 2)
        assert [action for action, _ in person.asked] == ["echo", "sleep"]
        content = ""
        while "begun" not in content:
            content = await do(host, "read_process_logs", id=1)
        assert content == "begun\nIt is running."
        assert await do(host, "read_process_logs", id=1) == "It wrote nothing more. It is running."
        (tmp_path / "go").touch()
        while "running" in content:
            content = await do(host, "read_process_logs", id=1)
        assert content == "It wrote nothing more. It has ended: exit code 2."
        assert await do(host, "kill_process", id=2) == "Process 2 has ended: signal 15."
        assert not family("sleep 86481")
        result = await host.tools.execute("kill_process", {"id": 2}, timeout=20)
        assert (result.is_error, result.content[:22]) == (True, "There is no process 2:")


async def test_a_cancelled_call_ends_its_command_and_no_job(tmp_path: Path) -> None:
    async with shell(tmp_path) as (host, _), trio.open_nursery() as nursery:
        await do(host, "spawn_background_process", command="sleep 86482")
        command = "trap '' INT; echo x > begun; sleep 86483"
        results = []

        async def execute() -> None:
            results.append(
                await host.tools.execute("run_shell_command", {"command": command}, call_id="c1", timeout=20)
            )

        nursery.start_soon(execute)
        while not (tmp_path / "begun").exists():
            await trio.sleep(0.005)
        await host.tools.cancel(["c1"], principal="bob")
        assert family("sleep 86483")
        await host.tools.cancel(["c1"])
        await gone("sleep 86483")
        assert family("sleep 86482")
    assert results[0].is_error
    assert not family("sleep 86482")
