"""What README.md shows runs as it stands there."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

README = (Path(__file__).parents[2] / "README.md").read_text("utf-8")


def test_the_python_code_runs_and_ends(run_python: Callable[..., str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    printed = run_python("-c", code)
    assert '{"words":2,"characters":3,"lines":1} False' in printed
    assert "tool.v1.execute.reverse_text.result" in printed


def test_every_command_it_names_is_one() -> None:
    from astrid_host.cli.app import app

    known = {command.name for command in app.registered_commands} | {group.name for group in app.registered_groups}
    named = set(re.findall(r"^astrid-host (\w+)", README, re.MULTILINE))
    assert named
    assert named <= known
