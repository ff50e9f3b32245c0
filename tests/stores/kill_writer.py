"""A process that forks writers, one after the other, for `test_killed_writers.py` to kill.

    python kill_writer.py STATE_DIR

For each line on stdin a writer is forked, which opens the database and writes until it is killed; then the next line is read.
On stdout: `pid N` of the writer, an `ack N` for each number whose writes are all committed, `dead` when the writer is.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from astrid_host.stores import Database, KvStore
from astrid_host.stores.audit import AuditStore
from astrid_host.stores.settings import SettingsStore

THREADS = 2


def write(state_dir: Path, begin: int) -> None:
    database = Database.open(state_dir)
    kv, settings, audit = KvStore(database), SettingsStore(database), AuditStore(database)
    numbers = iter(range(begin, begin + (1 << 20)))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                number = next(numbers)
            name, value = str(number), os.urandom(8 + number % 3000)
            kv.set("alice:capsule:killed", name, value)
            # As an approval that is granted for ever: two tables in one transaction.
            with database.transaction():
                kv.set("granted", name, b"")
                settings.set("alice", "killed", name, "granted")
            audit.append("alice", "killed", "kv.kv-set", name, "ok")
            say(f"ack {number}")

    for _ in range(THREADS - 1):
        threading.Thread(target=work, daemon=True).start()
    work()


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def main() -> None:
    state_dir, begin = Path(sys.argv[1]), 0
    for line in sys.stdin:
        begin = int(line)
        child = os.fork()
        if not child:
            say(f"pid {os.getpid()}")
            write(state_dir, begin)
        os.waitpid(child, 0)
        say("dead")


main()
