"""What a call costs does not grow with the calls before it: the audit, the queues and the accounts keep no history to walk."""

from __future__ import annotations

import time
from pathlib import Path

from astrid_host import BUNDLED, Host, open_host

SAMPLE = 250


async def typical(host: Host) -> float:
    """Seconds that an audited call takes: of 250 the 25th in order, which other programs on the machine hardly change."""
    took = []
    for _ in range(SAMPLE):
        begun = time.perf_counter()
        answer = await host.tools.execute("list_directory", {"dir_path": "."})
        took.append(time.perf_counter() - begun)
        assert not answer.is_error
    return sorted(took)[SAMPLE // 10]


async def test_an_audited_call_costs_the_same_after_10_000_others(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "a.txt").write_text("a")
    places = [Path(BUNDLED) / name for name in ("router", "fs")]
    async with open_host(places, trust=True, state_dir=tmp_path / "state", workspace=work) as host:
        await typical(host)  # instances are made, and the audit's first page
        first = await typical(host)
        for _ in range(10_000):
            await host.tools.execute("list_directory", {"dir_path": "."})
        assert await typical(host) <= 1.5 * first
