"""`astrid-host check`: all that is wrong with a capsule at once, each with file, line and what to write; exit 1 for an error."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from astrid_host.bundled import capsules_folder

Astrid: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]
MakeCapsule: TypeAlias = Callable[..., Path]

FAULTY = """
[publish]
"tool.v1.response.describe.*" = { wit = "opaque" }

[subscribe]
"tool.v1.execute.spell" = { wit = "opaque", handler = "tool_execute_spell" }
"tool.v1.request.describe" = { wit = "opaque", handler = "tool_describe" }

[[tool]]
name = "spell"
description_for_llm = "Spells a word."
input_schema_wit = "opaque"

[[tool]]
name = "sing"
description_for_llm = "Sings a song."
input_schema_wit = "opaque"
lyrics = "yes"
"""


def _numbered(folder: Path, text: str) -> int:
    """The number of the line that begins with this text."""
    lines = (folder / "Capsule.toml").read_text("utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.startswith(text))


def _told_at(folder: Path, text: str) -> str:
    """How a finding on the line that begins with this text begins."""
    return f"{folder / 'Capsule.toml'}:{_numbered(folder, text)}: "


def _finding(output: str, begin: str) -> str:
    """The finding that begins so, with the lines that belong to it."""
    found: list[str] = []
    for line in output.splitlines():
        if found and not line.startswith(" "):
            break
        if found or line.startswith(begin):
            found.append(line)
    assert found, f"nothing begins with {begin!r} in:\n{output}"
    return "\n".join(found)


def test_the_capsules_that_come_with_the_host_are_good(astrid: Astrid) -> None:
    done = astrid("check", capsules_folder())
    names = ", ".join(sorted(folder.name for folder in capsules_folder().iterdir()))
    assert done.stdout == f"{names}: 0 errors, 0 warnings\n"
    assert (done.stderr, done.returncode) == ("", 0)


def test_a_manifest_may_be_named_instead_of_its_folder(astrid: Astrid) -> None:
    done = astrid("check", capsules_folder() / "router" / "Capsule.toml", "--json")
    assert (json.loads(done.stdout), done.stderr, done.returncode) == ([], "", 0)


def test_everything_is_told_at_once_with_its_line_and_the_toml_to_write(astrid: Astrid, capsule: MakeCapsule) -> None:
    folder = capsule("faulty", FAULTY)
    done = astrid("check", folder)
    assert (done.stderr, done.returncode) == ("", 1)

    unknown_key = _finding(done.stdout, _told_at(folder, "lyrics"))
    assert "lyrics" in unknown_key

    declared = _numbered(folder, 'name = "sing"') - 1  # the line of its [[tool]]
    without_row = _finding(done.stdout, f"{folder / 'Capsule.toml'}:{declared}: ")
    assert "error: the tool 'sing' is declared" in without_row
    assert '"tool.v1.execute.sing" = { wit = "opaque", handler = "tool_execute_sing" }' in without_row

    row = _told_at(folder, '"tool.v1.execute.spell"')
    acl = _finding(done.stdout, f"{row}error: the tool 'spell' may not publish")
    assert '[publish]\n    "tool.v1.execute.*.result" = { wit = "opaque" }' in acl
    assert "does not know the action 'tool_execute_spell'" in _finding(done.stdout, f"{row}error: the guest")

    assert "'tool_describe'" not in done.stdout, "the guest knows this action"
    assert done.stdout.splitlines()[-1] == "faulty: 3 errors, 1 warning"


def test_json_has_keys_that_stay(astrid: Astrid, capsule: MakeCapsule) -> None:
    folder = capsule("faulty", FAULTY)
    done = astrid("check", folder, "--json")
    problems = json.loads(done.stdout)
    assert done.returncode == 1
    assert len(problems) == 4
    for problem in problems:
        assert set(problem) == {"severity", "message", "file", "line", "column", "mend"}
        assert problem["severity"] in ("error", "warning")
        assert problem["file"] == str(folder / "Capsule.toml")
        assert problem["line"] > 0


def test_a_missing_module_is_told_once(astrid: Astrid, capsule: MakeCapsule) -> None:
    folder = capsule("unbuilt")
    (folder / "guest.wasm").unlink()
    done = astrid("check", folder)
    assert (done.stderr, done.returncode) == ("", 1)
    assert "guest.wasm" in _finding(done.stdout, _told_at(folder, "file"))
    assert done.stdout.splitlines()[-1] == "unbuilt: 1 error, 0 warnings"


@pytest.mark.parametrize("file", ["/etc/passwd", "../outside.wasm", "\\u0000", "x" * 5000])
def test_no_file_outside_the_folder_is_read(astrid: Astrid, tmp_path: Path, file: str) -> None:
    (tmp_path / "outside.wasm").write_bytes(b"not wasm")
    folder = tmp_path / "sly"
    folder.mkdir()
    component = f'[[component]]\nid = "sly"\nfile = "{file}"\n'
    (folder / "Capsule.toml").write_text(f'[package]\nname = "sly"\nversion = "1.0.0"\n{component}', "utf-8")
    done = astrid("check", folder)
    assert (done.stderr, done.returncode) == ("", 1)
    assert _told_at(folder, "file") in done.stdout
    assert done.stdout.splitlines()[-1] == "sly: 1 error, 0 warnings"


def test_a_capsule_without_a_component_would_not_load(astrid: Astrid, tmp_path: Path) -> None:
    (tmp_path / "Capsule.toml").write_text('[package]\nname = "empty"\nversion = "1.0.0"\n', "utf-8")
    done = astrid("check", tmp_path)
    assert (done.stderr, done.returncode) == ("", 1)
    assert "[[component]]" in done.stdout


@pytest.mark.parametrize("module", [b"not wasm", b"\0asm\1\0\0\0\1\xff"])
def test_a_module_that_is_none_is_told(astrid: Astrid, capsule: MakeCapsule, module: bytes) -> None:
    folder = capsule("garbage")
    (folder / "guest.wasm").write_bytes(module)
    done = astrid("check", folder)
    assert (done.stderr, done.returncode) == ("", 1)
    assert f"{folder / 'Capsule.toml'}:" in done.stdout


def test_a_syntax_error_is_told_with_its_line(astrid: Astrid, capsule: MakeCapsule) -> None:
    folder = capsule("unwritten", "\n[subscribe\n")
    done = astrid("check", folder)
    assert (done.stderr, done.returncode) == ("", 1)
    assert _told_at(folder, "[subscribe") in done.stdout


def test_a_manifest_without_a_package_is_told(astrid: Astrid, tmp_path: Path) -> None:
    (tmp_path / "Capsule.toml").write_text('[[component]]\nid = "x"\nfile = "x.wasm"\n', "utf-8")
    done = astrid("check", tmp_path)
    assert (done.stderr, done.returncode) == ("", 1)
    assert f"{tmp_path / 'Capsule.toml'}:1: error: " in done.stdout
    assert "[package]" in done.stdout


def test_a_guest_that_computes_for_ever_does_not_keep_the_check(astrid: Astrid, capsule: MakeCapsule) -> None:
    rows = '[subscribe]\n"a.b" = { wit = "opaque", handler = "spin" }\n'
    done = astrid("check", capsule("spinner", rows, "spinner"))
    assert "Traceback" not in done.stderr
    assert "spinner: " in done.stdout


@pytest.mark.parametrize("named", ["nowhere/Capsule.toml", "empty", "file.txt"])
def test_a_place_without_a_capsule_is_wrong_usage(astrid: Astrid, tmp_path: Path, named: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.txt").write_text("", "utf-8")
    done = astrid("check", tmp_path / named)
    assert (done.stdout, done.returncode) == ("", 2)
    assert str(tmp_path / named) in done.stderr
    assert len(done.stderr.splitlines()) == 1
