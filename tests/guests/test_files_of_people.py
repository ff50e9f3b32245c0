"""The file tools on paths, files and folders as people have them: absolute names, links, line ends, encodings, mounts."""

from __future__ import annotations

import json
import os
import unicodedata
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from astrid_host import BUNDLED, open_host

ROUTER, FS = Path(BUNDLED) / "router", Path(BUNDLED) / "fs"
Ask: TypeAlias = Callable[..., Awaitable[tuple[bool, Any]]]
NFC, NFD = "caf\u00e9.txt", "cafe\u0301.txt"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    return work


@asynccontextmanager
async def asking(work: Path | str) -> AsyncIterator[Ask]:
    """Calls tools of a host: whether it went well, and the text that was returned."""

    async def ask(tool: str, **arguments: Any) -> tuple[bool, Any]:
        answer = await host.tools.execute(tool, arguments)
        return not answer.is_error, answer.content if answer.is_error else json.loads(answer.content)

    async with open_host([ROUTER, FS], trust=True, state_dir=":memory:", workspace=work) as host:
        yield ask


# Absolute paths


async def test_every_name_of_a_file_in_the_workspace_is_that_file(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(work.parent))
    (work / "a b.txt").write_text("hello")
    url = f"{work}/a b.txt".replace(" ", "%20")
    names = ["a b.txt", f"{work}/a b.txt", f"/{work}//./a b.txt", f"file://{url}", f"file://localhost{url}", f"file:{url}"]
    async with asking(work) as ask:
        for name in [*names, f"FILE://{url}", "~/work/a b.txt"]:
            assert await ask("read_file", file_path=name) == (True, "hello"), name
        for name in (str(work), f"{work}/", "~/work", f"file://{work}"):
            assert await ask("list_directory", dir_path=name) == (True, '["a b.txt"]'), name
        assert (await ask("write_file", file_path=f"{work}/new.txt", content="x"))[0]
        assert (await ask("create_directory", dir_path=f"file://{work}/in/it"))[0]
    assert sorted(path.name for path in work.iterdir()) == ["a b.txt", "in", "new.txt"]
    assert [path.name for path in (work / "in").iterdir()] == ["it"]


async def test_another_absolute_path_is_refused_with_the_workspaces_place(work: Path) -> None:
    (work.parent / "work2").mkdir()
    (work.parent / "work2" / "f").write_text("out")
    (work / "a.txt").write_text("in")
    async with asking(work) as ask:
        for path in ("/etc/passwd", "/a.txt", "/", f"{work}2/f", "file:///etc/passwd", "~/a.txt", "~"):
            for tool, arguments in (
                ("read_file", {"file_path": path}),
                ("write_file", {"file_path": path, "content": "x"}),
                ("list_directory", {"dir_path": path}),
                ("create_directory", {"dir_path": path}),
                ("grep_search", {"dir_path": path, "pattern": "x"}),
            ):
                well, said = await ask(tool, **arguments)
                assert not well, (tool, path)
                assert f"leads out of the workspace, which is {work}: name a place in it, relative to it" in said, (tool, path)
        for path in (f"{work}/../work2/f", "file://elsewhere/a.txt", f"file://{work}/%2e%2e/work2/f"):
            assert not (await ask("read_file", file_path=path))[0], path
    assert [path.name for path in work.iterdir()] == ["a.txt"]


async def test_a_tilde_that_is_a_name_is_said_with_a_dot(work: Path) -> None:
    async with asking(work) as ask:
        assert (await ask("create_directory", dir_path="./~"))[0]
        assert (await ask("write_file", file_path="./~/a", content="x"))[0]
    assert (work / "~" / "a").read_text() == "x"


# Workspaces that are reached by links


async def test_links_lead_back_into_a_workspace_by_any_of_its_names(tmp_path: Path, work: Path) -> None:
    (work / "t.txt").write_text("target\n")
    (work / "d").mkdir()
    (work / "d" / "in.txt").write_text("in")
    for alias, target in (("alias", "work"), ("far", "alias"), ("up", ".")):
        (tmp_path / alias).symlink_to(target)
    for number, name in enumerate(("work", "alias", "far", "up/work", "up/up/far")):
        (work / f"link{number}").symlink_to(tmp_path / name / "t.txt")
        (work / f"folder{number}").symlink_to(f"{tmp_path}/./{name}//d")
    (tmp_path / "secret").write_text("out")
    (work / "out").symlink_to(tmp_path / "alias" / ".." / "secret")
    for workspace in (work, tmp_path / "alias", tmp_path / "far"):
        async with asking(workspace) as ask:
            for number in range(5):
                assert await ask("read_file", file_path=f"link{number}") == (True, "target\n"), (workspace, number)
                assert await ask("list_directory", dir_path=f"folder{number}") == (True, '["in.txt"]')
            assert await ask("read_file", file_path=f"{workspace}/t.txt") == (True, "target\n")
            assert await ask("read_file", file_path=f"{work}/t.txt") == (True, "target\n")
            assert not (await ask("read_file", file_path="out"))[0]


async def test_a_relative_workspace_has_the_name_by_which_the_shell_went_there(
    tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "alias").symlink_to("work")
    (work / "a").write_text("x")
    monkeypatch.chdir(work)
    monkeypatch.setenv("PWD", str(tmp_path / "alias"))
    async with asking(".") as ask:
        assert await ask("read_file", file_path=f"{tmp_path}/alias/a") == (True, "x")
    monkeypatch.setenv("PWD", "/usr")  # a wrong one counts for nothing
    async with asking(".") as ask:
        assert not (await ask("read_file", file_path="/usr/a"))[0]


# Searching


async def test_text_is_found_whatever_the_file_is_like(work: Path) -> None:
    (work / "latin1.py").write_bytes(b"# caf\xe9\nNEEDLE\n")
    (work / "utf16.txt").write_bytes("\ufeffone\r\nNEEDLE \u00e9\r\n".encode("utf-16-le"))
    (work / "utf16be.txt").write_bytes("\ufeffNEEDLE".encode("utf-16-be"))
    (work / "utf8.txt").write_bytes(b"\xef\xbb\xbfNEEDLE")
    (work / os.fsdecode(b"bad\xffname")).write_bytes(b"NEEDLE")
    with (work / "big.log").open("wb") as big:
        big.write((b"x" * 39 + b"\n") * 300_000 + b"NEEDLE\n")
    (work / "many").mkdir()
    for number in range(4100):
        (work / "many" / f"{number:05}").touch()
    (work / "many" / "zz").write_text("NEEDLE")
    async with asking(work) as ask:
        well, said = await ask("grep_search", pattern="NEEDLE")
        assert well
        assert said.splitlines() == [
            "bad\ufffdname:1:NEEDLE",
            "big.log:300001:NEEDLE",
            "latin1.py:2:NEEDLE",
            "many/zz:1:NEEDLE",
            "utf16.txt:2:NEEDLE \u00e9",
            "utf16be.txt:1:NEEDLE",
            "utf8.txt:1:NEEDLE",
        ]
        assert await ask("grep_search", pattern="caf\u00e9") == (True, "latin1.py:1:# caf\ufffd")
        assert await ask("grep_search", pattern="nowhere") == (True, "No matches found.")


async def test_what_was_not_searched_is_said(work: Path) -> None:
    (work / "binary").write_bytes(b"\0\1NEEDLE")
    os.mkfifo(work / "fifo")
    deep = work
    for _ in range(66):
        deep = deep / "d"
        deep.mkdir()
    (deep / "f").write_text("NEEDLE")
    async with asking(work) as ask:
        well, said = await ask("grep_search", pattern="NEEDLE")
    assert well
    assert said.startswith("No matches found in what was searched.\n(")
    for part in ("1 binary, with the text in it (binary)", "1 neither file nor folder (fifo)", "1 too deep (d/d/"):
        assert part in said


async def test_searches_and_lists_go_on_where_they_were_cut(work: Path) -> None:
    (work / "a").write_text("x\n" * 7)
    for number in range(3):
        (work / f"f{number}").touch()
    async with asking(work) as ask:
        for given in ({"limit": 3, "offset": 5}, {"limit": 3.0, "offset": "5"}):
            assert await ask("grep_search", pattern="x", **given) == (True, "a:6:x\na:7:x")
        _, said = await ask("grep_search", pattern="x", limit=5)
        assert said.splitlines()[:5] == [f"a:{line}:x" for line in range(1, 6)]
        assert "there are more matches" in said and "offset" in said
        assert await ask("list_directory", dir_path=".", offset=2) == (True, '["f1","f2"]')
        _, said = await ask("list_directory", dir_path=".", limit=1)
        assert said == '["a"]\n(3 of 4 names follow: go on with offset = 1.)'


# Line ends


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        ("one\r\ntwo\r\nthree\r\n", "one\ntwo", "1\n2", "1\r\n2\r\nthree\r\n"),
        ("one\r\ntwo\r\n", "two", "2\n2b", "one\r\n2\r\n2b\r\n"),
        ("one\ntwo\n", "one\r\ntwo", "1\r\n2", "1\n2\n"),
        ("one\rtwo\r", "one\ntwo", "1\n2", "1\r2\r"),
        ("a\r\nb\nc\n", "b", "1\n2", "a\r\n1\n2\nc\n"),
        ("\ufeffone\r\ntwo", "one\ntwo", "1\n2", "\ufeff1\r\n2"),
        ("one\r\ntwo", "two", "2\n", "one\r\n2\r\n"),
    ],
)
async def test_a_files_own_line_ends_stay(work: Path, before: str, old: str, new: str, after: str) -> None:
    (work / "f").write_bytes(before.encode())
    async with asking(work) as ask:
        well, said = await ask("replace_in_file", file_path="f", old_string=old, new_string=new)
    assert well, said
    assert (work / "f").read_bytes() == after.encode()


async def test_write_file_keeps_what_it_is_given(work: Path) -> None:
    (work / "f").write_bytes(b"one\r\n")
    async with asking(work) as ask:
        for text in ("1\n2", "1\r\n2", "\ufeff1\r2\n"):
            assert (await ask("write_file", file_path="f", content=text))[0]
            assert (work / "f").read_bytes() == text.encode()


# Files that cannot be replaced, and names in other forms


class Refusing:
    """Lets no file take the place of another, as a mount point does; root may do that in every folder."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_arguments: Any, **_options: Any) -> None:
            raise OSError(16, "Device or resource busy")

        monkeypatch.setattr(os, "rename", refuse)


async def test_what_cannot_be_replaced_is_written_in_place_and_that_is_said(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "bound").write_text("a long old text\n")
    inode = (work / "bound").stat().st_ino
    Refusing(monkeypatch)
    async with asking(work) as ask:
        said = 'Wrote 3 bytes to "bound" in place, because the system does not let a new file take its place.'
        assert await ask("write_file", file_path="bound", content="new") == (True, said)
        assert (work / "bound").read_text() == "new"
        well, said = await ask("replace_in_file", file_path="bound", old_string="new", new_string="x" * 2_000)
        assert (well, "in place" in said) == (True, True)
        assert not (await ask("write_file", file_path="other", content="x"))[0]
    assert (work / "bound").read_text() == "x" * 2_000
    assert (work / "bound").stat().st_ino == inode
    assert [path.name for path in work.iterdir()] == ["bound"]


async def test_what_has_other_names_is_not_written_in_place(
    tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "outside").write_text("out")
    os.link(tmp_path / "outside", work / "inside")
    Refusing(monkeypatch)
    async with asking(work) as ask:
        assert not (await ask("write_file", file_path="inside", content="x"))[0]
    assert (tmp_path / "outside").read_text() == "out"


@pytest.mark.parametrize(("there", "asked"), [(NFC, NFD), (NFD, NFC), (NFD, NFD), ("\u1ebf", "\u00ea\u0301")])
async def test_a_name_is_found_in_every_form_of_unicode(work: Path, there: str, asked: str) -> None:
    (work / there).mkdir()
    (work / there / there).write_text("x")
    async with asking(work) as ask:
        assert await ask("read_file", file_path=f"{asked}/{asked}") == (True, "x")
        assert (await ask("write_file", file_path=f"{asked}/{asked}", content="y"))[0]
        assert (await ask("create_directory", dir_path=asked))[0]
        assert [path.name for path in work.iterdir()] == [there]
        assert [(path.name, path.read_text()) for path in (work / there).iterdir()] == [(there, "y")]
        assert (await ask("delete_file", file_path=f"{asked}/{asked}"))[0]


async def test_the_exact_name_comes_first_and_a_choice_is_left_to_who_asks(work: Path) -> None:
    forms = ["\u1ebf", unicodedata.normalize("NFD", "\u1ebf"), "\u00ea\u0301"]
    for form in forms[:2]:
        (work / form).write_text(str(len(form)))
    async with asking(work) as ask:
        assert await ask("read_file", file_path=forms[0]) == (True, "1")
        assert await ask("read_file", file_path=forms[1]) == (True, "3")
        well, said = await ask("read_file", file_path=forms[2])
        assert not well
        assert "2 names" in said and "in other forms of Unicode" in said
        assert not (await ask("write_file", file_path=forms[2], content="x"))[0]
    assert len(list(work.iterdir())) == 2
