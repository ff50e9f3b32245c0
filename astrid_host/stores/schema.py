"""The tables of the database, as steps from one version to the next.

A database remembers how many steps it has taken. Released steps are never edited: to change a table, append a step.
"""

from __future__ import annotations

# Tells our databases from those of other programs. Stands in the file's header, where `file` shows it.
APPLICATION_ID = 0x41737472

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
)
