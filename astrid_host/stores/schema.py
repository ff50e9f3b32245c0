"""The tables of the database, as steps from one version to the next.

A database remembers how many steps it has taken. Released steps are never edited: to change a table, append a step.
"""

from __future__ import annotations

# Tells our databases from those of other programs. Stands in the file's header, where `file` shows it.
APPLICATION_ID = 0x41737472

ROW_BYTES = 64  # what an entry of kv counts for beside its key and value


def _size(row: str) -> str:
    """What an entry of kv counts for, in SQL."""
    return f"(length(CAST({row}.key AS BLOB)) + length({row}.value) + {ROW_BYTES})"


STEPS: tuple[tuple[str, ...], ...] = (
    (
        # With a rowid, keys lie beside each other in the index, and a listing never reads past large values.
        """
        CREATE TABLE kv (
            namespace TEXT NOT NULL,
            key TEXT NOT NULL,
            value BLOB NOT NULL,
            UNIQUE (namespace, key)
        )
        """,
        """
        CREATE TABLE installed (
            package TEXT PRIMARY KEY,
            version TEXT NOT NULL,
            wasm_hash TEXT NOT NULL,
            source_id TEXT NOT NULL,
            installed_at REAL NOT NULL,
            updated_at REAL NOT NULL
        )
        """,
    ),
    (
        # AUTOINCREMENT keeps the greatest number that ever was, which tells of a tail that was cut off.
        """
        CREATE TABLE audit (
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            time INTEGER NOT NULL,
            principal TEXT NOT NULL,
            capsule TEXT NOT NULL,
            function TEXT NOT NULL,
            target TEXT NOT NULL,
            verdict TEXT NOT NULL,
            previous BLOB NOT NULL,
            hash BLOB NOT NULL
        )
        """,
        """
        CREATE TRIGGER audit_is_never_changed BEFORE UPDATE ON audit
        BEGIN SELECT RAISE(ABORT, 'the audit only grows'); END
        """,
        """
        CREATE TRIGGER audit_is_never_cut BEFORE DELETE ON audit
        BEGIN SELECT RAISE(ABORT, 'the audit only grows'); END
        """,
        """
        CREATE TABLE settings (
            principal TEXT NOT NULL,
            capsule TEXT NOT NULL,
            key TEXT NOT NULL,
            value TEXT NOT NULL,
            PRIMARY KEY (principal, capsule, key)
        ) WITHOUT ROWID
        """,
    ),
    (
        # An id is never given twice, so that a revoke which was typed late hits nothing else.
        """
        CREATE TABLE approvals (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            principal TEXT NOT NULL,
            workspace TEXT NOT NULL,
            capsule TEXT NOT NULL,
            wasm_hash TEXT NOT NULL,
            action TEXT NOT NULL,
            resource TEXT,
            allowed_at REAL NOT NULL,
            UNIQUE (principal, workspace, capsule, wasm_hash, action, resource)
        )
        """,
        """
        CREATE TABLE users (
            id TEXT PRIMARY KEY,
            display_name TEXT,
            created_at REAL NOT NULL
        )
        """,
        """
        CREATE TABLE user_links (
            platform TEXT NOT NULL,
            platform_user_id TEXT NOT NULL,
            user_id TEXT NOT NULL,
            method TEXT NOT NULL,
            linked_at REAL NOT NULL,
            PRIMARY KEY (platform, platform_user_id)
        )
        """,
        "CREATE INDEX user_links_of_users ON user_links (user_id)",
    ),
    (
        # What the operator trusts: a folder, as one package, with just these bytes. `asks` is what was shown, as JSON.
        """
        CREATE TABLE trusted (
            folder BLOB NOT NULL,
            package TEXT NOT NULL,
            digest TEXT NOT NULL,
            wasm_hash TEXT NOT NULL,
            asks BLOB NOT NULL,
            trusted_at REAL NOT NULL,
            PRIMARY KEY (folder, package)
        )
        """,
        # From here on, what a capsule keeps is filed under its name alone only when it came with the host; else under its name
        # and folder. Names of which there are older rows: they are a bundled capsule's where there is one, else they go to the
        # first capsule of that name that loads (`astrid_host.stores.origins`).
        "CREATE TABLE unclaimed (package TEXT PRIMARY KEY)",
        """
        INSERT INTO unclaimed
        SELECT capsule FROM settings UNION SELECT package FROM installed UNION SELECT capsule FROM approvals
        UNION SELECT DISTINCT substr(namespace, instr(namespace, ':capsule:') + 9) FROM kv WHERE namespace LIKE '%:capsule:%'
        """,
    ),
    (
        # Kept by triggers, so that no write, of whatever version or process, is missed. The row without a name is the sum of all.
        "CREATE TABLE kv_usage (namespace TEXT PRIMARY KEY, bytes INTEGER NOT NULL) WITHOUT ROWID",
        f"INSERT INTO kv_usage SELECT namespace, sum({_size('kv')}) FROM kv GROUP BY namespace",
        "INSERT INTO kv_usage SELECT '', coalesce(sum(bytes), 0) FROM kv_usage",
        f"""
        CREATE TRIGGER kv_grew AFTER INSERT ON kv BEGIN
            INSERT INTO kv_usage VALUES (NEW.namespace, {_size("NEW")})
                ON CONFLICT (namespace) DO UPDATE SET bytes = bytes + excluded.bytes;
            UPDATE kv_usage SET bytes = bytes + {_size("NEW")} WHERE namespace = '';
        END
        """,
        """
        CREATE TRIGGER kv_changed AFTER UPDATE OF value ON kv WHEN length(NEW.value) <> length(OLD.value) BEGIN
            UPDATE kv_usage SET bytes = bytes + length(NEW.value) - length(OLD.value)
                WHERE namespace IN (NEW.namespace, '');
        END
        """,
        f"""
        CREATE TRIGGER kv_shrank AFTER DELETE ON kv BEGIN
            UPDATE kv_usage SET bytes = bytes - {_size("OLD")} WHERE namespace IN (OLD.namespace, '');
        END
        """,
        """
        CREATE TABLE audit_checkpoints (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            seq INTEGER NOT NULL,
            hash BLOB NOT NULL,
            rows INTEGER NOT NULL,
            time INTEGER NOT NULL,
            before BLOB NOT NULL,
            seal BLOB NOT NULL
        )
        """,
        """
        CREATE TRIGGER audit_checkpoints_are_never_changed BEFORE UPDATE ON audit_checkpoints
        BEGIN SELECT RAISE(ABORT, 'checkpoints only grow'); END
        """,
        """
        CREATE TRIGGER audit_checkpoints_are_never_cut BEFORE DELETE ON audit_checkpoints
        BEGIN SELECT RAISE(ABORT, 'checkpoints only grow'); END
        """,
        "CREATE TABLE audit_segments (last INTEGER PRIMARY KEY, bytes INTEGER NOT NULL)",
        "DROP TRIGGER audit_is_never_cut",
        """
        CREATE TRIGGER audit_is_never_cut BEFORE DELETE ON audit
        WHEN OLD.seq > (SELECT coalesce(max(seq), 0) FROM audit_checkpoints)
        BEGIN SELECT RAISE(ABORT, 'the audit only grows'); END
        """,
    ),
)
