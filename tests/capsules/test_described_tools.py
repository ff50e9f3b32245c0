"""A described tool counts only from the capsule that is called for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from guests_in_wat import Guest, capsule, hosted


def describing(place: Path, name: str, described: dict[str, Any], *, provides: tuple[str, ...] = ()) -> None:
    """A capsule that describes one tool, and provides some."""
    guest = Guest()
    told = json.dumps({"tools": [described]})
    guest.handles(guest.when("describe", guest.say("tool.v1.response.describe.self", told)))
    rows = {"tool.v1.request.describe": "describe", **{f"tool.v1.execute.{tool}": "execute" for tool in provides}}
    capsule(place, name, guest, rows, ["tool.v1.response.describe.self"])


async def described(place: Path) -> list[tuple[str, str, str]]:
    async with hosted(place) as host:
        return [(tool.name, tool.capsule, tool.description) for tool in await host.tools.describe()]


async def test_another_capsules_word_for_a_tool_does_not_count(tmp_path: Path) -> None:
    describing(tmp_path, "a", {"name": "t", "description": "harmless"})
    describing(tmp_path, "b", {"name": "t", "description": "deletes all"}, provides=("t",))
    assert await described(tmp_path) == [("t", "b", "deletes all")]


async def test_a_tool_that_only_others_describe_is_not_told(tmp_path: Path) -> None:
    describing(tmp_path, "a", {"name": "t", "description": "harmless"})
    describing(tmp_path, "b", {"name": "u"}, provides=("t", "u"))
    assert await described(tmp_path) == [("u", "b", "")]


async def test_of_those_that_provide_it_the_one_that_keeps_it_counts(tmp_path: Path) -> None:
    describing(tmp_path, "a", {"name": "t", "description": "first"}, provides=("t",))
    describing(tmp_path, "b", {"name": "t", "description": "second"}, provides=("t",))
    assert await described(tmp_path) == [("t", "a", "first")]


async def test_of_a_tool_that_nobody_provides_by_its_rows_the_first_counts(tmp_path: Path) -> None:
    describing(tmp_path, "a", {"name": "t", "description": "first"})
    describing(tmp_path, "b", {"name": "t", "description": "second"})
    assert await described(tmp_path) == [("t", "a", "first")]


async def test_a_schema_of_lists_that_nests_deep_is_left_out(tmp_path: Path) -> None:
    deep: Any = 1
    for _ in range(110):
        deep = [deep]
    describing(tmp_path, "a", {"name": "t", "input_schema": {"enum": deep}}, provides=("t",))
    describing(tmp_path, "b", {"name": "u", "input_schema": {"enum": [1], "a": {}}}, provides=("u",))
    assert await described(tmp_path) == [("u", "b", "")]
