"""All stores of one host, opened and closed together."""

from __future__ import annotations

import secrets
from pathlib import Path

from astrid_host.stores.approvals import ApprovalStore
from astrid_host.stores.audit import AuditStore
from astrid_host.stores.database import BUSY_S, Database
from astrid_host.stores.identities import IdentityStore
from astrid_host.stores.installed import InstalledStore
from astrid_host.stores.kv import KvStore
from astrid_host.stores.origins import Origins
from astrid_host.stores.retention import KEY_BYTES, seal_key
from astrid_host.stores.secrets import SecretStore
from astrid_host.stores.settings import SettingsStore
from astrid_host.stores.trust import TrustStore


class Stores:
    """The stores of one host.

    Args:
        state_dir: the folder that holds them; None keeps them in memory.
        kv_quota: bytes that one namespace of kv may have, and all of them together.
        audit_bytes: that the audit may have; None lets none of its rows go.
        wait_s: for how many seconds a write waits while another process has the database locked. With 0 it raises Locked at
            once, for threads that must not wait.

    Attributes:
        retries: where such writes go.
        kv: what guests keep.
        installed: what was loaded before.
        audit: what guests did through the host.
        settings: what operators set for capsules.
        secrets: and what of it nobody may read.
        approvals: what people allowed for good.
        identities: the users of other platforms.
        trusted: the capsules that the operator consented to.
        origins: hands over what older versions filed under a name alone.

    Raises:
        StoreError: the database cannot be opened.
    """

    def __init__(
        self,
        state_dir: Path | None,
        wait_s: float = BUSY_S,
        kv_quota: tuple[int, int] = (1 << 62, 1 << 62),
        audit_bytes: int | None = None,
    ) -> None:
        self._database = Database.in_memory() if state_dir is None else Database.open(state_dir, wait_s)
        self.retries = self._database.retries
        self.kv = KvStore(self._database, *kv_quota)
        self.installed = InstalledStore(self._database)
        key = secrets.token_bytes(KEY_BYTES) if state_dir is None else seal_key(state_dir, make=audit_bytes is not None)
        self.audit = AuditStore(self._database, key=key, most=audit_bytes)
        self.settings = SettingsStore(self._database)
        self.secrets = SecretStore(state_dir)
        self.approvals = ApprovalStore(self._database)
        self.identities = IdentityStore(self._database)
        self.trusted = TrustStore(self._database)
        self.origins = Origins(self._database, self.secrets)

    def close(self) -> None:
        """Close the database, after what waits in `retries`; its stores raise StoreError from now on. A second time does
        nothing."""
        self._database.close()
