"""What the host remembers of loaded packages."""

from __future__ import annotations

from pathlib import Path

from astrid_host.stores import Database, Installed, InstalledStore, Stores


def test_the_first_load_has_no_version_before_it() -> None:
    database = Database.in_memory()
    store = InstalledStore(database)
    assert store.find("notes") is None
    assert store.remember("notes", "1.0.0", "aa", "s1") is None
    assert store.remember("notes", "1.0.0", "aa", "s1") == "1.0.0"
    assert store.remember("notes", "1.1.0", "bb", "s2") == "1.0.0"
    assert store.remember("notes", "1.1.0", "bb", "s2") == "1.1.0"
    assert store.remember("other", "2.0.0", "cc", "s3") is None
    database.close()


def test_it_keeps_when_a_package_came_and_when_it_changed() -> None:
    database = Database.in_memory()
    now = [100.0]
    store = InstalledStore(database, lambda: now[0])
    store.remember("notes", "1.0.0", "aa", "s1")
    now[0] = 200.0
    store.remember("notes", "1.0.0", "aa", "s1")
    assert store.find("notes") == Installed("notes", "1.0.0", "aa", "s1", 100.0, 100.0)
    now[0] = 300.0
    store.remember("notes", "1.0.0", "bb", "s2")
    assert store.all() == [Installed("notes", "1.0.0", "bb", "s2", 100.0, 300.0)]
    database.close()


def test_a_state_folder_remembers_and_memory_does_not(tmp_path: Path) -> None:
    for state_dir, expected in ((tmp_path, "1.0.0"), (None, None)):
        stores = Stores(state_dir)
        stores.installed.remember("notes", "1.0.0", "aa", "s1")
        stores.close()
        stores = Stores(state_dir)
        assert stores.installed.remember("notes", "2.0.0", "bb", "s2") == expected
        stores.close()
