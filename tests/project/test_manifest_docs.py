"""docs/manifest.md names every key that a manifest may have, with an example that is TOML, and its whole examples load."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection
from pathlib import Path

import pytest

from astrid_host import manifest
from astrid_host.manifest.legacy import ARRAYS
from astrid_host.manifest.schema import Limits
from astrid_host.manifest.sheet import Sheet
from astrid_host.manifest.tables import TABLES

DOCUMENT = (Path(__file__).parents[2] / "docs" / "manifest.md").read_text("utf-8")
HEAD = '[package]\nname = "x"\nversion = "1.0.0"\n[[component]]\nfile = "x.wasm"\n'
# One entry of each table, of the form that has keys.
EVERY_TABLE = """
package = {}
component = [{ capabilities = {} }]
imports = { astrid = { tool = {} } }
exports = { astrid = { tool = {} } }
publish = { "a.b" = {} }
subscribe = { "a.b" = {} }
tool = [{}]
capabilities = {}
env = { KEY = { options_from = {} } }
context_file = [{}]
command = [{}]
mcp_server = [{}]
uplink = [{}]
skill = [{}]
limits = {}
"""
FREE = {"skill"}  # its keys are anybody's


def documented() -> dict[str, list[tuple[str, ...]]]:
    """The rows of each table of the document, by the tables of a manifest that the heading above them names."""
    found: dict[str, list[tuple[str, ...]]] = {}
    heads: list[str] = []
    for line in DOCUMENT.splitlines():
        if line.startswith("#"):
            heads = re.findall(r"`\[*(\w+)\]*`", line)
            found |= {head: [] for head in heads}
        elif heads and line.startswith("| ") and not line.startswith("| key "):
            cells = tuple(cell.strip() for cell in line.strip("| ").split(" | "))
            for head in heads:
                found[head].append(cells)
    return found


def accepted(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """The keys that the reader knows, by table: what it compares the keys of a manifest with."""
    found: dict[str, set[str]] = {}

    def note(_: Sheet, _table: Collection[str], known: Collection[str], *path: str | int) -> None:
        names = [name for name in path if isinstance(name, str)]
        table = next((name for name in reversed(names) if name in ("capabilities", "options_from")), "".join(names[:1]))
        found.setdefault(table, set()).update(known)

    monkeypatch.setattr(Sheet, "unknown", note)
    manifest.check_text(EVERY_TABLE, Path("Capsule.toml"))
    assert found.pop("") == set(TABLES)
    return found


def test_every_table_has_a_heading() -> None:
    assert set(TABLES) - set(documented()) == set()
    assert [name for name in ARRAYS if f"`[[{name}]]`" not in DOCUMENT] == []


def test_every_key_that_is_accepted_is_named_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = accepted(monkeypatch)
    assert set(TABLES) - set(keys) == FREE, "the sample has an entry of each table"
    for table, known in keys.items():
        named = {key for row in documented()[table] for key in re.findall(r"`([\w-]+)`", row[0])}
        if table in ("imports", "exports"):
            assert known <= named, table
        else:
            assert named == known, table


def test_every_row_says_what_the_host_does_and_has_an_example_that_is_toml() -> None:
    rows = [row for rows in documented().values() for row in rows]
    assert rows
    for row in rows:
        assert len(row) == 5, row
        assert all(row), row
        (example,) = re.findall(r"^`(.+)`$", row[4])
        (key,) = tomllib.loads(example)
        assert f"`{key}`" in row[0] or row[0].startswith("an "), row


def test_the_defaults_of_limits_are_those_that_hold() -> None:
    told = {re.sub(r"\W", "", row[0]): row[2].strip('`"') for row in documented()["limits"]}
    assert told == {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in _limits().items()}


def _limits() -> dict[str, object]:
    return {name: getattr(Limits(), name) for name in Limits.__struct_fields__}


def test_what_is_shown_whole_is_read_without_a_problem(tmp_path: Path) -> None:
    examples = re.findall(r"```toml\n(.*?)```", DOCUMENT, re.DOTALL)
    assert examples
    for example in examples:
        text = example if "[package]" in example else HEAD + example
        for name in ("x.wasm", "file-tools.wasm"):
            (tmp_path / name).touch()
        assert manifest.check_text(text, tmp_path / "Capsule.toml")[1] == [], example
