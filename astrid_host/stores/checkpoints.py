"""Checkpoints: the write-ahead log's pages go back into the database file, on a thread that may wait for the disk.

Without them the log grows until a commit has to do it, which then takes milliseconds. A checkpoint that fails is tried
again after the next writes; nothing is lost meanwhile, because readers read the log too.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
from pathlib import Path

log = logging.getLogger(__name__)

EVERY_PAGES = 1000


class Checkpoints:
    """Makes the checkpoints of one database file.

    Args:
        path: the file.
        every: how many written pages make one due.
    """

    def __init__(self, path: Path, every: int = EVERY_PAGES) -> None:
        self._path = path
        self._every = every
        self._pages = 0
        self._due = threading.Event()
        self._lock = threading.Lock()
        self._closed = False
        self._thread: threading.Thread | None = None

    def wrote(self, pages: int) -> None:
        """Count written pages. Two threads that count at once may lose some, which only delays a checkpoint."""
        self._pages += pages
        if self._pages >= self._every:
            self._pages = 0
            with self._lock:
                if self._thread is None and not self._closed:
                    self._thread = threading.Thread(target=self._run, name="astrid-checkpoints", daemon=True)
                    self._thread.start()
            self._due.set()

    def close(self) -> None:
        """End the thread, after a last checkpoint."""
        with self._lock:
            self._closed = True
        self._due.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        with contextlib.closing(sqlite3.connect(self._path, isolation_level=None)) as connection:
            while True:
                self._due.wait()
                self._due.clear()
                last = self._closed
                try:
                    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                except sqlite3.Error as error:
                    log.warning("%s: a checkpoint failed and is tried again later: %s", self._path, error)
                if last:
                    return
