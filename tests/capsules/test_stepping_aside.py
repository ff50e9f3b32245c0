"""Bundled capsules step aside for given ones, and take part after all when the given one does not load."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from guests_in_wat import Guest, capsule, next_of

from astrid_host import Host, host, open_host
from astrid_host.errors import LoadError


def saying(word: str, *more: str) -> Guest:
    guest = Guest()
    return guest.handles(guest.say("said.it", f'"{word}"')).add(*more)


def gate(place: Path, name: str, word: str, *more: str, **tables: Any) -> Path:
    """A capsule that provides the tool `t`, and exports an interface."""
    exports = {"astrid": {"gate": "1.0.0"}}
    return capsule(place, name, saying(word, *more), {"t.ask": "act"}, ["said.it"], exports=exports, **tables)


@pytest.fixture
def bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "bundled"
    gate(place, "gate", "bundled")
    monkeypatch.setattr(host, "capsules_folder", lambda: place)
    return place


@asynccontextmanager
async def both(tmp_path: Path, **options: Any) -> AsyncIterator[Host]:
    options = {"state_dir": ":memory:", **options}
    async with open_host(
        [tmp_path / "given", tmp_path / "bundled"], trust=True, workspace=tmp_path / "given", **options
    ) as opened:
        yield opened


async def answers(opened: Host) -> list[Any]:
    """Who answers."""
    async with opened.subscribe("said.it") as said, opened.subscribe("astrid.v1.dispatch.settled.t.ask") as over:
        opened.publish("t.ask", {}, settle=True)
        await next_of(over)
        opened.publish("said.it", "end")
        heard: list[Any] = []
        while (event := await next_of(said)).payload != "end":
            heard.append(event.payload)
        return heard


BREAKS = {
    "no module": lambda folder: (folder / f"{folder.name}.wasm").write_bytes(b"\0asm nothing"),
    "module is missing": lambda folder: (folder / f"{folder.name}.wasm").unlink(),
    "no instance can be made": lambda folder: (folder / f"{folder.name}.wasm").write_bytes(
        saying("given", "(func $begins (unreachable))", "(start $begins)").wasm()
    ),
    "its hook fails": lambda folder: (folder / f"{folder.name}.wasm").write_bytes(
        saying("given", '(func (export "astrid-install") (unreachable))').wasm()
    ),
    "its manifest has an error": lambda folder: (folder / "Capsule.toml").write_text(
        (folder / "Capsule.toml").read_text() + "\n[limits]\ntimeout_secs = -1\n"
    ),
}


@pytest.mark.parametrize("name", ["other", "gate"])
async def test_a_given_capsule_takes_the_place_of_a_bundled_one(name: str, tmp_path: Path, bundled: Path) -> None:
    gate(tmp_path / "given", name, "given")
    async with both(tmp_path) as opened:
        assert opened.capsules["gate"].state == ("shadowed" if name == "other" else "ready")
        assert await answers(opened) == ["given"]


@pytest.mark.parametrize("name", ["other", "gate"])
@pytest.mark.parametrize("breaks", BREAKS)
async def test_a_bundled_capsule_comes_back_when_the_given_one_does_not_load(
    name: str, breaks: str, tmp_path: Path, bundled: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = gate(tmp_path / "given", name, "given")
    BREAKS[breaks](folder)
    async with both(tmp_path, state_dir=tmp_path / "state") as opened:
        info = opened.capsules["gate"]
        assert (info.state, info.error, info.folder) == ("ready", None, bundled / "gate")
        assert await answers(opened) == ["bundled"]
        if name == "other":
            assert opened.capsules["other"].state == "failed"
            assert opened.capsules["other"].error
        assert "was not loaded" in caplog.text
        assert "the bundled capsule gate takes part after all" in caplog.text or name == "other"


async def test_one_that_another_given_capsule_replaces_too_stays_aside(tmp_path: Path, bundled: Path) -> None:
    broken = gate(tmp_path / "given", "a", "broken")
    gate(tmp_path / "given", "b", "given")
    BREAKS["no module"](broken)
    async with both(tmp_path) as opened:
        assert (opened.capsules["gate"].state, opened.capsules["a"].state) == ("shadowed", "failed")
        assert "steps aside for b" in str(opened.capsules["gate"].error)
        assert await answers(opened) == ["given"]


async def test_one_that_steps_aside_is_not_reloaded_beside_its_replacement(tmp_path: Path, bundled: Path) -> None:
    gate(tmp_path / "given", "other", "given")
    async with both(tmp_path) as opened:
        with pytest.raises(LoadError, match="gate steps aside for other"):
            await opened.reload("gate")
        assert (opened.capsules["gate"].state, await answers(opened)) == ("shadowed", ["given"])
        await opened.unload("other")
        await opened.reload("gate")
        assert await answers(opened) == ["bundled"]


async def test_one_that_came_back_steps_aside_when_the_given_one_is_mended(tmp_path: Path, bundled: Path) -> None:
    folder = gate(tmp_path / "given", "other", "given")
    BREAKS["no module"](folder)
    async with both(tmp_path) as opened:
        assert await answers(opened) == ["bundled"]
        (folder / "other.wasm").write_bytes(saying("given").wasm())
        await opened.reload("other")
        assert (opened.capsules["gate"].state, opened.capsules["other"].state) == ("shadowed", "ready")
        assert await answers(opened) == ["given"]


async def test_a_folder_without_a_capsule_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "empty").mkdir()
    async with open_host([tmp_path / "empty"], trust=True, state_dir=":memory:", workspace=tmp_path) as opened:
        assert opened.capsules == {}
    assert f"there is no capsule in {tmp_path / 'empty'}" in caplog.text
