"""What people allowed for good: one row for each allowance, kept until it is revoked.

An allowance belongs to a principal, a workspace and one build of a capsule: a capsule whose module changed asks again. A row says
what was allowed; whether it covers a request is for the gates to say. Rows are read at each request, so what another process
revokes ends at once. All methods raise StoreError when the database fails.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from astrid_host.errors import StoreError
from astrid_host.stores.database import Database

_COLUMNS = "id, principal, workspace, capsule, wasm_hash, action, resource, allowed_at"
_OF = "principal = ? AND workspace = ? AND capsule = ? AND wasm_hash = ?"


class Holder(NamedTuple):
    """Whose an allowance is.

    Attributes:
        principal: on whose behalf the capsule acts.
        workspace: the folder that `cwd://` means, absolute and without links.
        capsule: its id.
        wasm_hash: of its module, BLAKE3 in hexadecimal.
    """

    principal: str
    workspace: str
    capsule: str
    wasm_hash: str


class Allowed(NamedTuple):
    """One row: `id` names it for `revoke`; `resource` is None where the action alone counts; times are seconds since 1970."""

    id: int
    principal: str
    workspace: str
    capsule: str
    wasm_hash: str
    action: str
    resource: str | None
    allowed_at: float


class ApprovalStore:
    """The allowances in a database.

    Args:
        database: where they are kept.
        now: the clock, in seconds since 1970.
    """

    def __init__(self, database: Database, now: Callable[[], float] = time.time) -> None:
        self._database = database
        self._now = now

    def allow(self, holder: Holder, action: str, resource: str | None) -> Allowed:
        """Keep an allowance; one that is there already stays as it is. It may wait, on this thread, while another process has
        the database locked.

        Returns:
            The row, new or not.
        """
        return self._database.patiently(lambda: self._keep(holder, action, resource))

    def _keep(self, holder: Holder, action: str, resource: str | None) -> Allowed:
        with self._database.transaction():
            found = self._find(holder, action, resource)
            if found is None:
                self._database.change(
                    "INSERT INTO approvals (principal, workspace, capsule, wasm_hash, action, resource, allowed_at) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (*holder, action, resource, self._now()),
                )
                found = self._find(holder, action, resource)
            if found is None:
                raise StoreError("an allowance was written and is not there: check the disk of the state folder")
            return found

    def _find(self, holder: Holder, action: str, resource: str | None) -> Allowed | None:
        row = self._database.row(
            f"SELECT {_COLUMNS} FROM approvals WHERE {_OF} AND action = ? AND resource IS ?",
            (*holder, action, resource),
        )
        return None if row is None else Allowed(*row)

    def of(self, holder: Holder) -> list[tuple[str, str | None]]:
        """The actions and resources that were allowed to one holder, oldest first."""
        sql = f"SELECT action, resource FROM approvals WHERE {_OF} ORDER BY id"
        return [(action, resource) for action, resource in self._database.rows(sql, tuple(holder))]

    def all(self) -> list[Allowed]:
        """Every allowance, oldest first."""
        return [Allowed(*row) for row in self._database.rows(f"SELECT {_COLUMNS} FROM approvals ORDER BY id")]

    def revoke(self, number: int) -> bool:
        """Forget an allowance; False when there is none of that `id`."""
        sql = "DELETE FROM approvals WHERE id = ?"
        return self._database.patiently(lambda: self._database.change(sql, (number,))) == 1
