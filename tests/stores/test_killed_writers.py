"""A host that is killed loses nothing that it acknowledged: what a method wrote is there when it has returned."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from astrid_host.stores import Stores

KILLS = 50
LONGEST_S = 0.04
PROGRAM = Path(__file__).with_name("kill_writer.py")


@pytest.fixture
def writers(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(PROGRAM), str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def kill_one(writers: subprocess.Popen[str], begin: int, after_s: float) -> list[int]:
    """Start a writer and kill it; returns the numbers that it acknowledged."""
    assert writers.stdin is not None
    assert writers.stdout is not None
    writers.stdin.write(f"{begin}\n")
    writers.stdin.flush()
    word, pid = writers.stdout.readline().split()
    assert word == "pid"
    acknowledged = [read_ack(writers.stdout.readline())]
    time.sleep(after_s)  # anywhere in its writing
    os.kill(int(pid), signal.SIGKILL)
    while (line := writers.stdout.readline()) != "dead\n":
        acknowledged.append(read_ack(line))
    return acknowledged


def read_ack(line: str) -> int:
    word, number = line.split()
    assert word == "ack"
    return int(number)


def test_what_was_acknowledged_outlives_fifty_kills(tmp_path: Path, writers: subprocess.Popen[str]) -> None:
    chance, acknowledged = random.Random(7), set[int]()
    for kill in range(KILLS):
        acknowledged.update(kill_one(writers, kill * 1_000_000, chance.uniform(0, LONGEST_S)))
        with closing(Stores(tmp_path)) as stores:
            written = set(map(int, stores.kv.list_keys("alice:capsule:killed")))
            granted = {int(name) for name in stores.kv.list_keys("granted")}
            found = stores.audit.verify()
            assert found.faults == []
            assert granted == {int(row.key) for row in stores.settings.all()}, "half of a transaction was kept"
            assert acknowledged <= written
            assert acknowledged <= granted
            if kill % 10 == 9:
                assert acknowledged <= {int(row.target) for row in stores.audit.rows()}
    assert len(acknowledged) >= KILLS
