"""Whose what is stored is: a capsule's by name and origin, so that a namesake from elsewhere gets nothing of it.

What a bundled capsule keeps is filed under its name; what another one keeps, under its name and a hash of its folder, as
`name@hash`. Older databases filed everything under the name alone: that stays with the bundled capsule of the name where there is
one, and else goes to the first folder that loads under it.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from blake3 import blake3

from astrid_host.stores.database import Database
from astrid_host.stores.secrets import SecretStore

log = logging.getLogger(__name__)
MARK = "@"
DIGITS = 32


def storage_id(name: str, folder: Path | None) -> str:
    """Under which what belongs to a capsule is filed.

    Args:
        name: its package's, of a-z, 0-9 and '-'.
        folder: absolute and without links; None for one that came with the host.
    """
    return name if folder is None else f"{name}{MARK}{blake3(os.fsencode(folder)).hexdigest()[:DIGITS]}"


def name_in(storage_id: str) -> str:
    """The package's name in that."""
    return storage_id.partition(MARK)[0]


class Origins:
    """Hands rows of older databases to those that they belong to.

    Args:
        database: whose rows.
        secrets: of the same state folder.
    """

    def __init__(self, database: Database, secrets: SecretStore) -> None:
        self._database = database
        self._secrets = secrets

    def claim(self, name: str, owner: str) -> bool:
        """Let a capsule have what an older version of the host filed under its name alone; whether there was anything.

        Args:
            name: of a package that no bundled capsule has.
            owner: its storage id.

        It may wait for other processes, and for a keyring. Secrets that a keyring does not give stay where they are.

        Raises:
            StoreError: the database, or the file of secrets, fails.
        """
        claimed = self._claim_secrets(name, owner)
        if self._database.row("SELECT 1 FROM unclaimed WHERE package = ?", (name,)) is not None:
            self._database.patiently(lambda: self._claim_rows(name, owner))
            claimed = True
        if claimed:
            log.info("what was stored for %s before capsules were told apart by their folders is its own", name)
        return claimed

    def _claim_rows(self, name: str, owner: str) -> None:
        change = self._database.change
        with self._database.transaction():
            if change("DELETE FROM unclaimed WHERE package = ?", (name,)) == 0:
                return  # another process was first
            change("UPDATE OR IGNORE settings SET capsule = ? WHERE capsule = ?", (owner, name))
            change("UPDATE OR IGNORE approvals SET capsule = ? WHERE capsule = ?", (owner, name))
            change("UPDATE OR IGNORE installed SET package = ? WHERE package = ?", (owner, name))
            end = f":capsule:{name}"
            for (namespace,) in self._database.rows("SELECT DISTINCT namespace FROM kv"):
                principal = namespace.removesuffix(end)
                if principal != namespace and ":" not in principal:
                    moved = f"{principal}:capsule:{owner}"
                    change("UPDATE OR IGNORE kv SET namespace = ? WHERE namespace = ?", (moved, namespace))

    def _claim_secrets(self, name: str, owner: str) -> bool:
        mine = [secret for secret in self._secrets.all() if secret.capsule == name]
        for secret in mine:
            value = self._secrets.get(secret.principal, name, secret.key)
            if value is None:
                log.warning("the secret %s of %s cannot be read now, and is left where it is", secret.key, name)
                continue
            if not self._secrets.has(secret.principal, owner, secret.key):
                self._secrets.set(secret.principal, owner, secret.key, value)
            self._secrets.unset(secret.principal, name, secret.key)
        return bool(mine)
