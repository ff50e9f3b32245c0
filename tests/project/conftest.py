"""Programs that the project shows, run as whoever copies them would."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

RunPython: TypeAlias = Callable[..., str]


@pytest.fixture
def run_python(tmp_path: Path) -> RunPython:
    """Run Python with these arguments in an empty folder, with a data folder of its own; what it printed. It must end well."""

    def run(*arguments: str | Path) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env={**os.environ, "XDG_DATA_HOME": str(tmp_path / "data")},
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
