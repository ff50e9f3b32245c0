"""The tools of the capsule fs, as its built module answers in a host with the router."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from astrid_host import BUNDLED, open_host

ROUTER, FS = Path(BUNDLED) / "router", Path(BUNDLED) / "fs"
Ask: TypeAlias = Callable[..., Awaitable[tuple[bool, Any]]]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    (work / "src" / "deep").mkdir(parents=True)
    (work / "src" / "a.txt").write_text("one\ntwo\nthree\n")
    (work / "src" / "deep" / "b.txt").write_text("two and two\n")
    (tmp_path / "outside").write_text("two outside\n")
    return work


@asynccontextmanager
async def asking(work: Path) -> AsyncIterator[Ask]:
    """Calls tools of a host: whether it went well, and the text that was returned."""

    async def ask(tool: str, **arguments: Any) -> tuple[bool, Any]:
        answer = await host.tools.execute(tool, arguments)
        return not answer.is_error, answer.content if answer.is_error else json.loads(answer.content)

    async with open_host([ROUTER, FS], state_dir=":memory:", workspace=work) as host:
        yield ask


async def test_it_offers_eight_tools_and_says_which_of_them_change_something(work: Path) -> None:
    async with open_host([ROUTER, FS], state_dir=":memory:", workspace=work) as host:
        tools = {tool.name: tool for tool in await host.tools.describe()}
    assert sorted(tools) == [
        "create_directory",
        "delete_file",
        "grep_search",
        "list_directory",
        "move_file",
        "read_file",
        "replace_in_file",
        "write_file",
    ]
    changing = {name for name, tool in tools.items() if tool.input_schema.get("mutable")}
    assert changing == {"create_directory", "delete_file", "move_file", "replace_in_file", "write_file"}
    assert {name: tuple(sorted(tool.input_schema["properties"])) for name, tool in tools.items()} == {
        "create_directory": ("dir_path",),
        "delete_file": ("file_path",),
        "grep_search": ("dir_path", "limit", "offset", "pattern"),
        "list_directory": ("dir_path", "limit", "offset"),
        "move_file": ("destination_path", "source_path"),
        "read_file": ("end_line", "file_path", "start_line"),
        "replace_in_file": ("file_path", "new_string", "old_string"),
        "write_file": ("content", "file_path"),
    }
    assert tools["grep_search"].input_schema["required"] == ["pattern"]


async def test_files_are_written_and_read(work: Path) -> None:
    async with asking(work) as ask:
        content = 'ä\n"quoted"\n\\ \U0001f600\n'
        assert await ask("write_file", file_path="src/new.txt", content=content) == (
            True,
            'Wrote 19 bytes to "src/new.txt".',
        )
        assert await ask("read_file", file_path="src/new.txt") == (True, content)
        assert await ask("read_file", file_path="cwd://src/new.txt", start_line=2, end_line=2) == (True, '"quoted"')
        assert await ask("write_file", file_path="src/new.txt", content="") == (True, 'Wrote 0 bytes to "src/new.txt".')
    assert (work / "src" / "new.txt").read_bytes() == b""


async def test_a_text_that_is_there_once_is_replaced(work: Path) -> None:
    async with asking(work) as ask:
        replace = {"file_path": "src/a.txt", "old_string": "two\n", "new_string": "2\r\n"}
        assert await ask("replace_in_file", **replace) == (True, 'Replaced the text in "src/a.txt".')
        assert (work / "src" / "a.txt").read_bytes() == b"one\n2\r\nthree\n"
        well, said = await ask("replace_in_file", **replace)
        assert not well
        assert "is not in" in said
        well, said = await ask("replace_in_file", file_path="src/deep/b.txt", old_string="two", new_string="x")
        assert not well
        assert "2 times" in said
        well, said = await ask("replace_in_file", file_path="src/a.txt", old_string="", new_string="x")
        assert not well
        assert "old_string is empty" in said
    assert (work / "src" / "deep" / "b.txt").read_text() == "two and two\n"


async def test_folders_are_made_and_listed(work: Path) -> None:
    async with asking(work) as ask:
        assert await ask("create_directory", dir_path="new/inner") == (True, 'The folder "new/inner" is there.')
        assert (await ask("create_directory", dir_path="new"))[0]
        well, names = await ask("list_directory", dir_path=".")
        assert well
        assert json.loads(names) == ["new", "src"]
        well, said = await ask("create_directory", dir_path="src/a.txt")
        assert (well, said.endswith('"src/a.txt" is there already.')) == (False, True)


async def test_lines_are_found(work: Path) -> None:
    (work / ".git").mkdir()
    (work / ".git" / "config").write_text("two\n")
    (work / "binary").write_bytes(b"two\xff\n")
    (work / "link").symlink_to("src")
    (work / "out").symlink_to("../outside")
    async with asking(work) as ask:
        both = "binary:1:two\ufffd\nsrc/a.txt:2:two\nsrc/deep/b.txt:1:two and two"
        assert await ask("grep_search", pattern="two") == (True, both)
        assert await ask("grep_search", pattern="two", dir_path=".") == (True, both)
        assert await ask("grep_search", pattern="two", dir_path="src/deep/") == (True, "src/deep/b.txt:1:two and two")
        assert await ask("grep_search", pattern="two", dir_path="src/a.txt") == (True, "src/a.txt:2:two")
        assert await ask("grep_search", pattern="t.o") == (True, "No matches found.")
        for arguments, told in (
            ({"pattern": ""}, "The pattern is empty"),
            ({"pattern": "x", "dir_path": "missing"}, "There is no folder"),
            ({"pattern": "x", "dir_path": "../"}, "leads out of the workspace"),
        ):
            well, said = await ask("grep_search", **arguments)
            assert not well
            assert told in said


async def test_a_search_with_too_many_matches_says_so(work: Path) -> None:
    for i in range(20):
        (work / f"{i:02}").write_text("x\n" * 30)
    async with asking(work) as ask:
        well, text = await ask("grep_search", pattern="x")
    lines = text.splitlines()
    assert well
    assert len(lines) == 501
    assert (lines[0], lines[499]) == ("00:1:x", "16:20:x")
    assert lines[500].startswith("(there are more matches")


async def test_files_are_deleted_and_moved(work: Path) -> None:
    (work / "link").symlink_to("src/a.txt")
    async with asking(work) as ask:
        assert (await ask("move_file", source_path="src/a.txt", destination_path="moved"))[0]
        assert (work / "moved").read_text() == "one\ntwo\nthree\n"
        for arguments, told in (
            ({"source_path": "moved", "destination_path": "src/deep/b.txt"}, "is there already"),
            ({"source_path": "src", "destination_path": "elsewhere"}, "only files are moved"),
            ({"source_path": "src/a.txt", "destination_path": "x"}, "There is no file"),
            ({"source_path": "moved", "destination_path": "nowhere/x"}, "create_directory"),
            ({"source_path": "moved", "destination_path": "home://x"}, "outside of the workspace"),
        ):
            well, said = await ask("move_file", **arguments)
            assert not well
            assert told in said
        assert (await ask("delete_file", file_path="moved"))[0]
        assert (await ask("delete_file", file_path="link"))[0]
        well, said = await ask("delete_file", file_path="moved")
        assert (well, "There is no file" in said) == (False, True)
        well, said = await ask("delete_file", file_path="src")
        assert (well, "is a folder" in said) == (False, True)
    assert sorted(os.listdir(work)) == ["src"]


CHANGES: dict[str, dict[str, str]] = {
    "write_file": {"file_path": "{}", "content": "x"},
    "replace_in_file": {"file_path": "{}", "old_string": "outside", "new_string": "x"},
    "create_directory": {"dir_path": "{}/x"},
    "delete_file": {"file_path": "{}"},
    "move_file": {"source_path": "src/a.txt", "destination_path": "{}"},
}


@pytest.mark.parametrize("tool", CHANGES)
async def test_nothing_outside_of_the_workspace_is_changed(work: Path, tool: str) -> None:
    (work / "up").symlink_to("..")
    async with asking(work) as ask:
        for path in ("../outside", "up/outside", "src/../../outside", "home://outside", "/tmp/outside"):
            arguments = {name: value.format(path) for name, value in CHANGES[tool].items()}
            well, said = await ask(tool, **arguments)
            assert not well, path
            assert "workspace" in said or "is there already" in said
    assert (work.parent / "outside").read_text() == "two outside\n"
    assert (work / "src" / "a.txt").exists()
    assert sorted(os.listdir(work.parent)) == ["outside", "work"]


async def test_large_files_pass_in_both_directions(work: Path) -> None:
    """As large as a message may be: it has the text in a JSON string within a JSON string."""
    content = "0123456789abcde\n" * 50_000
    async with asking(work) as ask:
        assert (await ask("write_file", file_path="big", content=content))[0]
        assert await ask("read_file", file_path="big") == (True, content)
        assert (await ask("replace_in_file", file_path="big", old_string=content[:33], new_string="y"))[0] is False
    assert (work / "big").read_text() == content
