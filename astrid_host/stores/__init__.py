"""What the host keeps on disk: one SQLite database for each state folder, and the stores in it.

A write is committed when its method returns: killing the process loses none. What goes wrong is a `StoreError` that
says what to do; a database that cannot be read is never written. Of these errors `Locked` passes: another process is
writing, and `Retries` tries again.
"""

from astrid_host.stores.database import Database
from astrid_host.stores.installed import Installed, InstalledStore
from astrid_host.stores.kv import Full, KeyPage, KvStore
from astrid_host.stores.origins import name_in, storage_id
from astrid_host.stores.retries import Locked, Retries
from astrid_host.stores.stores import Stores
from astrid_host.stores.trust import TrustRecord

__all__ = [
    "Database",
    "Full",
    "Installed",
    "InstalledStore",
    "KeyPage",
    "KvStore",
    "Locked",
    "Retries",
    "Stores",
    "TrustRecord",
    "name_in",
    "storage_id",
]
