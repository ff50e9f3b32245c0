"""What README.md shows runs as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

README = (Path(__file__).parents[2] / "README.md").read_text("utf-8")


def test_the_python_code_runs_and_ends(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    places = {"XDG_DATA_HOME": str(tmp_path / "data"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | places,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert '{"words":2,"characters":3,"lines":1} False' in done.stdout
    assert "tool.v1.execute.reverse_text.result" in done.stdout


def test_every_command_it_names_is_one() -> None:
    from astrid_host.cli.app import app

    known = {command.name for command in app.registered_commands} | {group.name for group in app.registered_groups}
    named = set(re.findall(r"^astrid-host (\w+)", README, re.MULTILINE))
    assert named
    assert named <= known
