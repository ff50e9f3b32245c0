"""All stores of one host, opened and closed together."""

from __future__ import annotations

from pathlib import Path

from astrid_host.stores.database import Database
from astrid_host.stores.installed import InstalledStore
from astrid_host.stores.kv import KvStore


class Stores:
    """The stores of one host.

    Args:
        state_dir: the folder that holds them; None keeps them in memory.

    Attributes:
        kv: what guests keep.
        installed: what was loaded before.

    Raises:
        StoreError: the database cannot be opened.
    """

    def __init__(self, state_dir: Path | None) -> None:
        self._database = Database.in_memory() if state_dir is None else Database.open(state_dir)
        self.kv = KvStore(self._database)
        self.installed = InstalledStore(self._database)

    def close(self) -> None:
        """Close the database; its stores raise StoreError from now on. A second time does nothing."""
        self._database.close()
