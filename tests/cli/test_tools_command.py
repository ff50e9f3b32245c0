"""`astrid-host tools`: what can be called, for people and as JSON with keys that stay."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

Astrid: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]
MakeCapsule: TypeAlias = Callable[..., Path]


def test_json_lists_each_tool_with_the_keys_that_describe_gives(astrid: Astrid) -> None:
    done = astrid("tools", "--json")
    assert (done.stderr, done.returncode) == ("", 0)
    tools = {tool["name"]: tool for tool in json.loads(done.stdout)}
    assert {"word_count", "reverse_text", "list_directory", "read_file", "note_save", "note_read", "note_list"} <= set(
        tools
    )
    for tool in tools.values():
        assert set(tool) == {"name", "description", "input_schema", "capsule", "mutable"}
        assert tool["input_schema"]["type"] == "object"
        assert tool["description"]
    assert tools["word_count"]["capsule"] == "word-tools"
    assert "text" in tools["word_count"]["input_schema"]["properties"]
    assert {name for name, tool in tools.items() if tool["mutable"]} == {
        *("note_save", "save_identity"),
        *("write_file", "replace_in_file", "create_directory", "delete_file", "move_file"),
        *("run_shell_command", "spawn_background_process", "kill_process"),
    }


def test_the_table_has_a_line_for_each_tool(astrid: Astrid) -> None:
    done = astrid("tools")
    head, *rows = (line.split() for line in done.stdout.splitlines())
    assert (head[:2], done.stderr, done.returncode) == (["tool", "capsule"], "", 0)
    table = {row[0]: row[1:3] for row in rows}
    assert table["word_count"] == ["word-tools", "no"]
    assert table["note_save"] == ["kv-notes", "yes"]
    assert len(table) == len(rows) == 22
    assert all(line == line.rstrip() for line in done.stdout.splitlines())


def test_without_capsules_there_are_no_tools(astrid: Astrid) -> None:
    done = astrid("tools", "--json", "--no-bundled")
    assert (json.loads(done.stdout), done.stderr, done.returncode) == ([], "", 0)


def test_people_are_told_that_there_are_no_tools(astrid: Astrid, capsule: MakeCapsule) -> None:
    done = astrid("tools", "--no-bundled")
    assert (done.stdout, done.returncode) == ("", 0)
    assert done.stderr == (
        "astrid-host: no capsule is loaded, so none provides tools: name a capsule's folder with --capsules\n"
    )
    done = astrid("tools", "--no-bundled", "--capsules", capsule("silent"))
    assert (done.stdout, done.returncode) == ("", 0)
    assert "none of the 1 loaded capsules provides tools" in done.stderr


def test_a_capsule_that_does_not_load_is_told_and_the_others_are_listed(astrid: Astrid, capsule: MakeCapsule) -> None:
    broken = capsule("broken")
    (broken / "guest.wasm").write_bytes(b"not wasm")
    done = astrid("tools", "--capsules", broken)
    assert done.returncode == 0
    assert "word_count" in done.stdout
    assert "broken" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_place_that_does_not_exist_is_a_failure_told_in_a_line(astrid: Astrid, tmp_path: Path) -> None:
    done = astrid("tools", "--capsules", tmp_path / "nowhere")
    assert (done.stdout, done.returncode) == ("", 3)
    assert done.stderr.startswith("astrid-host: ")
    assert str(tmp_path / "nowhere") in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_workspace_that_does_not_exist_is_a_failure_told_in_a_line(astrid: Astrid, tmp_path: Path) -> None:
    done = astrid("tools", "--workspace", tmp_path / "nowhere")
    assert (done.stdout, done.returncode) == ("", 3)
    assert len(done.stderr.splitlines()) == 1


def test_a_state_folder_that_cannot_be_made_is_a_failure_told_in_a_line(astrid: Astrid, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    done = astrid("tools", "--state-dir", tmp_path / "file")
    assert (done.stdout, done.returncode) == ("", 3)
    assert len(done.stderr.splitlines()) == 1
