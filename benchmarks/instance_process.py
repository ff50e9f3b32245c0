"""The process whose memory is taken: one tool capsule, which each of so many principals calls once.

It writes one line of JSON: the resident bytes that came with each principal, and the nanoseconds of each first call, from
publish to the tool's answer.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import trio

from astrid_host import BUNDLED, Host, HostSubscription, open_host

CAPSULE = "word-tools"
ASKED = "tool.v1.execute.word_count"
ANSWERED = f"{ASKED}.result"
LIMIT_S = 30.0


async def main(principals: int) -> None:
    """Call, and write what it took.

    Raises:
        RuntimeError: the tool did not answer as expected.
        trio.TooSlowError: it took more than half a minute.
    """
    taken = []
    with trio.fail_after(LIMIT_S):
        async with (
            open_host([Path(BUNDLED) / CAPSULE], state_dir=":memory:", strict=True) as host,
            host.subscribe(ANSWERED) as answers,
        ):
            await _first_call(host, answers, "warm")
            before = resident_bytes()
            for number in range(principals):
                taken.append(await _first_call(host, answers, f"bench-{number}"))
            each = (resident_bytes() - before) / principals
    print(msgspec.json.encode({"bytes": each, "taken": taken}).decode())


async def _first_call(host: Host, answers: HostSubscription, principal: str) -> int:
    request = {
        "type": "tool_execute_request",
        "call_id": "1",
        "tool_name": "word_count",
        "arguments": {"text": "a b\nc"},
    }
    begin = time.perf_counter_ns()
    host.publish(ASKED, request, principal=principal)
    answer = await anext(answers)
    taken = time.perf_counter_ns() - begin
    if answer.principal != principal or '"words":3,' not in str(answer.payload["result"]["content"]):
        raise RuntimeError(
            f"word_count answered {answer.payload!r} to {answer.principal}, expected 3 words to {principal}"
        )
    return taken


def resident_bytes() -> int:
    """What this process holds in memory now."""
    gc.collect()
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    told = subprocess.run(["ps", "-o", "rss=", "-p", str(os.getpid())], capture_output=True, text=True, check=True)
    return int(told.stdout) * 1024


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]))
