"""Manifests that load: what they say, in both forms, from real capsules; and files that are none."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from astrid_host.errors import ManifestError
from astrid_host.manifest import (
    Component,
    McpServer,
    OptionsFrom,
    ToolRow,
    check,
    check_text,
    load,
)

VECTORS = Path(__file__).parent / "vectors"
REAL = sorted(path.name for path in VECTORS.glob("*.toml"))


def folder_of(tmp_path: Path, vector: str) -> Path:
    """A capsule's folder with that manifest and the module that it names; the manifest's path."""
    shutil.copy(VECTORS / vector, tmp_path / "Capsule.toml")
    module = vector.removesuffix(".toml").replace("-", "_") + ".wasm"
    (tmp_path / module).write_bytes(b"\0asm")
    return tmp_path / "Capsule.toml"


@pytest.mark.parametrize("vector", REAL)
def test_a_manifest_as_real_capsules_have_it_loads_without_any_problem(tmp_path: Path, vector: str) -> None:
    manifest, problems = check(folder_of(tmp_path, vector))
    assert problems == []
    assert manifest is not None
    assert manifest.package.name == vector.removesuffix(".toml")


@pytest.mark.parametrize("vector", REAL)
def test_loading_does_not_scan_for_places_until_one_is_asked_for(tmp_path: Path, vector: str) -> None:
    manifest = load(folder_of(tmp_path, vector))
    assert "positions" not in vars(manifest.source)
    assert all(row.line > 1 for row in manifest.subscribe)
    assert "positions" in vars(manifest.source)


def test_a_typical_manifest_loads_in_a_few_milliseconds_at_most(tmp_path: Path) -> None:
    path = folder_of(tmp_path, "aos-router.toml")
    load(path)

    def once() -> float:
        begin = time.perf_counter()
        load(path)
        return time.perf_counter() - begin

    assert min(once() for _ in range(20)) < 0.005  # a millisecond where nothing else runs


def test_both_forms_of_imports_and_exports_mean_the_same(tmp_path: Path) -> None:
    head = '[package]\nname = "x"\nversion = "1.0.0"\n'
    flat = '[imports]\n"astrid:llm" = "^1.0"\n"b:c" = { version = "1", optional = true }\n[exports]\n"d:e" = "1.2.3"\n'
    nested = (
        '[imports.astrid]\nllm = { version = "^1.0" }\n[imports.b]\nc = { version = "1", optional = true }\n[exports]\n'
    )
    nested += 'd = { e = { version = "1.2.3" } }\n'
    one, other = (check_text(head + text, tmp_path / "Capsule.toml")[0] for text in (flat, nested))
    assert one is not None
    assert other is not None
    assert one.imports == other.imports
    assert one.exports == other.exports
    assert [(i.namespace, i.interface, str(i.requirement), i.optional) for i in one.imports] == [
        ("astrid", "llm", "^1.0", False),
        ("b", "c", "1", True),
    ]
    assert not one.imports[0].satisfied_by(one.exports[0])


def test_capabilities_of_the_root_and_of_the_first_component_are_added(tmp_path: Path) -> None:
    identity = load(folder_of(tmp_path, "aos-identity.toml")).capabilities
    assert identity.fs_read == ("home://",)
    assert identity.names() == ["allow_prompt_injection", "fs_read", "fs_write"]
    cli = load(folder_of(tmp_path, "aos-cli.toml")).capabilities
    assert cli.net_bind == ("unix:*",)
    assert cli.uplink


def test_env_fields_keep_types_defaults_and_where_choices_come_from(tmp_path: Path) -> None:
    env = load(folder_of(tmp_path, "aos-openai-compat.toml")).env
    assert env["api_key"].type == "secret"
    assert not env["api_key"].has_default
    assert (env["context_window"].type, env["context_window"].default) == ("integer", 128000)
    wanted = OptionsFrom("{base_url}/v1/models", "api_key", "data[].id", ("base_url", "api_key"))
    assert env["model"].options_from == wanted


@pytest.mark.parametrize("key", ["options_from", "options-from"])
def test_where_choices_come_from_has_two_spellings(tmp_path: Path, key: str) -> None:
    text = f'[package]\nname = "x"\nversion = "1.0.0"\n[env.m]\ntype = "select"\n{key} = {{ http = "u" }}\n'
    manifest, _ = check_text(text, tmp_path / "Capsule.toml")
    assert manifest is not None
    assert manifest.env["m"].options_from == OptionsFrom("u")


def test_every_table_is_read(tmp_path: Path) -> None:
    manifest = load(folder_of(tmp_path, "everything.toml"))
    assert manifest.package.yields_to == ("aos-react",)
    assert manifest.package.license_file == "LICENSE"
    assert manifest.components == (Component("everything.wasm", "everything", None, "executable", ("other",)),)
    assert manifest.publish_rows == ("a.v1.settled", "a.v1.answer")
    assert manifest.publish["a.v1.settled"].settle
    assert manifest.publish["a.v1.answer"].pin == ("path", "wit/a.wit")
    ask, watch, anything = manifest.handlers
    assert (ask.handler, ask.priority, ask.on_error, ask.reply) == ("on_ask", 7, "continue", "a.v1.answer")
    assert (watch.priority, watch.on_error, watch.guard) == (100, "fail", True)
    assert anything.priority == 0
    assert manifest.tools[1] == ToolRow("second", mutable=True)
    assert manifest.mcp_servers == (McpServer("m", None, "stdio", "server", ("--flag",)),)
    assert manifest.limits.timeout_secs == 2.5
    assert manifest.limits.on_trap == "reload"


def test_what_a_manifest_does_not_say_has_its_default(tmp_path: Path) -> None:
    manifest = load(folder_of(tmp_path, "aos-router.toml"))
    limits = manifest.limits
    assert (limits.memory_bytes, limits.timeout_secs, limits.concurrency, limits.on_trap) == (
        64 << 20,
        300,
        1,
        "quarantine",
    )
    assert manifest.capabilities.names() == []
    assert manifest.subscribe[0].reply is None


def test_rows_know_their_lines_and_missing_ones_that_of_their_table(tmp_path: Path) -> None:
    path = folder_of(tmp_path, "everything.toml")
    lines = path.read_text().split("\n")
    manifest = load(path)
    for table, name, text in (
        ("subscribe", "a.v1.ask", '"a.v1.ask"'),
        ("publish", "a.v1.answer", '"a.v1.answer"'),
        ("env", "nested", "nested"),
        ("limits", "concurrency", "concurrency"),
        ("subscribe", "no.such.row", "[subscribe]"),
    ):
        assert lines[manifest.line_of(table, name) - 1].startswith(text)
    assert lines[manifest.line_of("tool", "second")].startswith('name = "second"')
    assert manifest.line_of("no-such-table", "x") == 1
    assert manifest.subscribe[0].line == manifest.line_of("subscribe", "a.v1.ask")


@pytest.mark.parametrize("write", ["text", "crlf", "mark"])
def test_line_ends_of_windows_and_a_byte_order_mark_do_no_harm(tmp_path: Path, write: str) -> None:
    path = folder_of(tmp_path, "everything.toml")
    text = path.read_text()
    raw = {"text": text, "crlf": text.replace("\n", "\r\n"), "mark": "\ufeff" + text}[write].encode()
    path.write_bytes(raw)
    manifest, problems = check(path)
    assert problems == []
    assert manifest is not None
    assert text.split("\n")[manifest.line_of("limits", "on_trap") - 1].startswith("on_trap")


def one_problem(path: Path) -> tuple[str, int, int]:
    manifest, problems = check(path)
    assert manifest is None
    assert len(problems) == 1
    assert problems[0].severity == "error"
    return problems[0].message, problems[0].line, problems[0].column


def test_what_is_no_text_is_one_problem_and_no_traceback(tmp_path: Path) -> None:
    path = tmp_path / "Capsule.toml"
    assert one_problem(path)[0] == "there is no such file"
    assert one_problem(tmp_path)[0] == "it is a folder, not a file"
    assert "cannot be read" in one_problem(tmp_path / "a\0b")[0]
    path.write_bytes(b'[package]\nname = "\xc3\xa4\xff"\n')
    assert one_problem(path) == ("it is not UTF-8: invalid start byte at byte 20", 2, 10)
    path.write_bytes(b"#" * ((64 << 10) + 1))
    assert "larger than 65536 bytes" in one_problem(path)[0]
    path.unlink()
    os.mkfifo(path)
    assert one_problem(path)[0] == "it is no plain file"
    path.unlink()
    path.symlink_to(path)
    assert "cannot be read" in one_problem(path)[0]


def test_a_text_that_is_no_toml_is_told_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "Capsule.toml"
    for text, line, column in (
        ("a = \n", 1, 5),
        ("[package]\nname = 1x\n", 2, 9),
        ("[a]\n[a]\n", 2, 3),
        ("x = [1\n", 1, 1),
    ):
        path.write_text(text)
        message, *place = one_problem(path)
        assert message.startswith("it is not TOML: ")
        if text != "x = [1\n":  # "at end of document" says no more
            assert place == [line, column]
    with pytest.raises(ManifestError, match=r"Capsule.toml:1: error: it is not TOML"):
        load(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = " + "[" * 20_000, "nest too deep"),
        ("x = " + "9" * 5_000, "it is not TOML"),
        ("x" + ".x" * 300_000 + " = 1", "more than 32 parts"),
        ("[package]\nname = 0x" + "F" * 5_000, "a whole number beyond 64 bits"),
        ("[env.e]\ntype = 'text'\ndefault" + ".x" * 30 + " = 1", "default nests deeper than 16"),
        ("y = 1" + "".join(f"\nx{number} = 1" for number in range(20_000)), "19802 more warnings are not shown"),
        ("[subscribe]\n" + "".join(f"\n{number} = {number}" for number in range(3_000)), "2801 more errors"),
        ("[[component]]\nfile = '../x.wasm'\n" + "".join(f"\nx{number} = 1" for number in range(3_000)), "leads out"),
    ],
    ids=[
        "brackets",
        "digits",
        "dots",
        "hexadecimal",
        "default",
        "unknown keys",
        "rows",
        "an error after many warnings",
    ],
)
def test_a_hostile_text_is_refused_quickly(tmp_path: Path, text: str, said: str) -> None:
    begin = time.perf_counter()
    manifest, problems = check_text(text, tmp_path / "Capsule.toml")
    assert time.perf_counter() - begin < 5
    assert manifest is None
    assert len(problems) <= 402
    assert any(said in problem.message for problem in problems)


def test_what_is_shown_holds_no_control_characters(tmp_path: Path) -> None:
    text = (
        '[package]\nname = "\\u001b[31m"\n"\\u001b]0;x\\u0007" = 1\n[publish]\n"a..\\u202e\\U000e0001" = "x"\nb = 1\n'
    )
    text += '[subscribe]\n"c\\u001b.d" = { wit = "x", reply = "\\u001b.x" }\n'
    _, problems = check_text(text, tmp_path / "Capsule.toml")
    assert len(problems) > 5
    assert all(line.isprintable() for problem in problems for line in str(problem).split("\n"))
