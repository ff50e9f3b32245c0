"""Users, and their names on other platforms. Ids are UUIDs that are never used twice. (Astrid, identity.)

A name on a platform belongs to one user at most. All methods raise StoreError when the database fails.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import NamedTuple

from astrid_host.stores.database import Database


class User(NamedTuple):
    """A user; `display_name` is None for one that was given none."""

    id: str
    display_name: str | None


class Link(NamedTuple):
    """A user's name on a platform; `linked_at` is in seconds since 1970, `method` says how it was proved."""

    platform: str
    platform_user_id: str
    linked_at: float
    method: str


class IdentityStore:
    """The users in a database.

    Args:
        database: where they are kept.
        now: the clock, in seconds since 1970.
    """

    def __init__(self, database: Database, now: Callable[[], float] = time.time) -> None:
        self._database = database
        self._now = now

    def create(self, display_name: str | None) -> User:
        """Make a user."""
        user = User(str(uuid.uuid4()), display_name)
        sql = "INSERT INTO users (id, display_name, created_at) VALUES (?, ?, ?)"
        self._database.change(sql, (*user, self._now()))
        return user

    def find(self, user: str) -> User | None:
        """The user of that id, None without one."""
        row = self._database.row("SELECT id, display_name FROM users WHERE id = ?", (user,))
        return None if row is None else User(*row)

    def resolve(self, platform: str, platform_user_id: str) -> User | None:
        """The user behind a name on a platform, None when it is nobody's."""
        row = self._database.row(
            "SELECT users.id, users.display_name FROM user_links JOIN users ON users.id = user_links.user_id "
            "WHERE platform = ? AND platform_user_id = ?",
            (platform, platform_user_id),
        )
        return None if row is None else User(*row)

    def link(self, platform: str, platform_user_id: str, user: str, method: str) -> bool:
        """Say that a name on a platform is a user's, who exists; False when it belongs to somebody already."""
        count = self._database.change(
            "INSERT INTO user_links (platform, platform_user_id, user_id, method, linked_at) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (platform, platform_user_id) DO NOTHING",
            (platform, platform_user_id, user, method, self._now()),
        )
        return count == 1

    def unlink(self, platform: str, platform_user_id: str) -> bool:
        """Undo that; False when the name is nobody's."""
        sql = "DELETE FROM user_links WHERE platform = ? AND platform_user_id = ?"
        return self._database.change(sql, (platform, platform_user_id)) == 1

    def links(self, user: str) -> list[Link]:
        """A user's names, by platform and name."""
        sql = (
            "SELECT platform, platform_user_id, linked_at, method FROM user_links WHERE user_id = ? "
            "ORDER BY platform, platform_user_id"
        )
        return [Link(*row) for row in self._database.rows(sql, (user,))]
