"""The kernel moves events by topic; what a tool is, only the convention on top of it knows."""

from __future__ import annotations

from pathlib import Path

import pytest

import astrid_host

PACKAGE = Path(astrid_host.__file__).parent
KERNEL = (
    "bus",
    "scheduler",
    "dispatch",
    "capsules",
    "engine",
    "abi",
    "manifest",
    "hostcalls",
    "gates",
    "stores",
    "topics.py",
)


@pytest.mark.parametrize("room", KERNEL)
def test_a_room_of_the_kernel_names_no_tool_topic(room: str) -> None:
    """No file of it contains the string, not even in a comment."""
    place = PACKAGE / room
    files = [place] if place.suffix == ".py" else sorted(place.rglob("*.py"))
    assert files, f"{place} holds no Python"
    assert [str(file) for file in files if "tool.v1" in file.read_text("utf-8")] == []


def test_one_file_of_the_package_names_tool_topics() -> None:
    naming = [file for file in PACKAGE.rglob("*.py") if "tool.v1" in file.read_text("utf-8")]
    assert naming == [PACKAGE / "tools" / "topics.py"]
