"""Users and their names on other platforms, as the database keeps them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from astrid_host.stores import Database
from astrid_host.stores.identities import IdentityStore, Link


@pytest.fixture
def store() -> Iterator[IdentityStore]:
    database = Database.in_memory()
    yield IdentityStore(database, lambda: 3.0)
    database.close()


def test_users_have_ids_of_their_own(store: IdentityStore) -> None:
    made = [store.create("Ann"), store.create("Ann"), store.create(None)]
    assert len({user.id for user in made}) == 3
    for user in made:
        assert str(uuid.UUID(user.id)) == user.id
        assert store.find(user.id) == user
    assert store.find("nobody") is None


def test_a_name_is_one_users_until_it_is_unlinked(store: IdentityStore) -> None:
    ann, bob = store.create("Ann"), store.create("Bob")
    assert store.resolve("discord", "1") is None
    assert store.link("discord", "1", ann.id, "token")
    assert not store.link("discord", "1", bob.id, "token")
    assert not store.link("discord", "1", ann.id, "token")
    assert store.resolve("discord", "1") == ann
    assert store.resolve("Discord", "1") is None
    assert store.unlink("discord", "1")
    assert not store.unlink("discord", "1")
    assert store.link("discord", "1", bob.id, "admin")
    assert store.resolve("discord", "1") == bob


def test_links_are_sorted_and_only_the_users(store: IdentityStore) -> None:
    ann, bob = store.create("Ann"), store.create("Bob")
    for platform, name, user in (("b", "2", ann), ("a", "9", ann), ("b", "1", ann), ("a", "1", bob)):
        store.link(platform, name, user.id, "m")
    assert store.links(ann.id) == [Link("a", "9", 3.0, "m"), Link("b", "1", 3.0, "m"), Link("b", "2", 3.0, "m")]
    assert store.links("nobody") == []


def test_they_are_there_after_the_host_starts_again(tmp_path: Path) -> None:
    database = Database.open(tmp_path)
    ann = IdentityStore(database).create("Ann")
    IdentityStore(database).link("discord", "1", ann.id, "token")
    database.close()
    database = Database.open(tmp_path)
    assert IdentityStore(database).resolve("discord", "1") == ann
    database.close()
