"""The programs in `examples/` run as they stand there, in an empty folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SAID = {
    "embed_trio": ['word_count: {"words":3,"characters":13,"lines":2}', "tool.v1.execute.reverse_text.result olleh"],
    "embed_asyncio": ['{"words":2,"characters":3,"lines":1}', "olleh"],
    "approval_policy": ["secrets.md -> Denied: ", "there now: ['today.md']"],
}


def test_each_of_them_is_run_here() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(SAID)


@pytest.mark.parametrize("name", SAID)
def test_it_runs_and_says_what_it_is_about(name: str, run_python: Callable[..., str]) -> None:
    printed = run_python(EXAMPLES / f"{name}.py")
    for said in SAID[name]:
        assert said in printed
