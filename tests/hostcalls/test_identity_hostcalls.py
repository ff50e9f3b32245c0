"""astrid:identity as guests call it: three levels, typed errors, and users that stay."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from people import call, manifest, refusal

from astrid_host.errors import HostError
from astrid_host.gates.identity import may_identify
from astrid_host.hostcalls.identity import Identity
from astrid_host.stores import Database
from astrid_host.stores.identities import IdentityStore
from astrid_host.stores.secrets import SecretStore


def may(*rows: str) -> Any:
    return call(of=manifest(identity=rows))


ADMIN, LINK, RESOLVE, NOBODY = may("admin"), may("link"), may("resolve"), may()


@pytest.fixture
def identity(database: Database) -> Identity:
    return Identity(IdentityStore(database, lambda: 1_800_000_000.25))


def name(platform: str = "discord", platform_user_id: str = "ann#1") -> Any:
    return SimpleNamespace(platform=platform, platform_user_id=platform_user_id)


def link(user: str, platform: str = "discord", platform_user_id: str = "ann#1", method: str = "token") -> Any:
    return SimpleNamespace(platform=platform, platform_user_id=platform_user_id, astrid_user_id=user, method=method)


def new(display_name: str | None = "Ann") -> Any:
    return SimpleNamespace(display_name=display_name)


def test_it_has_every_function_of_the_interface_and_each_is_audited(identity: Identity) -> None:
    functions = identity.functions()
    assert sorted(functions) == [
        "identity-create-user",
        "identity-link",
        "identity-list-links",
        "identity-resolve",
        "identity-unlink",
    ]
    assert not any(function.waits or function.suspends for function in functions.values())
    targets = {}
    for key, arguments in (
        ("identity-create-user", new()),
        ("identity-link", link("u")),
        ("identity-list-links", "u"),
        ("identity-resolve", name()),
        ("identity-unlink", name()),
    ):
        target = functions[key].audited
        assert target is not None
        targets[key] = target(arguments)
    assert list(targets.values()) == ["Ann", "discord:ann#1", "u", "discord:ann#1", "discord:ann#1"]


def test_a_user_is_made_linked_resolved_listed_and_unlinked(identity: Identity) -> None:
    user = identity.create_user(ADMIN, new()).user_id
    assert str(uuid.UUID(user)) == user
    identity.link(LINK, link(user))
    found = identity.resolve(RESOLVE, name())
    assert (found.user_id, found.display_name) == (user, "Ann")
    (listed,) = identity.list_links(LINK, user)
    assert (listed.platform, listed.platform_user_id, listed.method) == ("discord", "ann#1", "token")
    when = datetime.datetime.fromisoformat(listed.linked_at)
    assert (when.timestamp(), when.utcoffset()) == (1_800_000_000.25, datetime.timedelta(0))
    identity.unlink(LINK, name())
    assert refusal(lambda: identity.resolve(RESOLVE, name())) == "link-not-found"
    assert identity.list_links(LINK, user) == []


def test_a_user_may_have_no_name_to_show(identity: Identity) -> None:
    user = identity.create_user(ADMIN, new(None)).user_id
    identity.link(ADMIN, link(user, method=""))
    assert identity.resolve(ADMIN, name()).display_name is None


def test_what_is_not_there_and_what_is_taken_have_their_own_errors(identity: Identity) -> None:
    ann, bob = (identity.create_user(ADMIN, new(display)).user_id for display in ("Ann", "Bob"))
    assert refusal(lambda: identity.resolve(ADMIN, name())) == "link-not-found"
    assert refusal(lambda: identity.unlink(ADMIN, name())) == "link-not-found"
    for nobody in (str(uuid.uuid4()), "nobody", ann.upper() + "x"):
        assert refusal(lambda nobody=nobody: identity.link(ADMIN, link(nobody))) == "user-not-found"  # type: ignore[misc]
        assert refusal(lambda nobody=nobody: identity.list_links(ADMIN, nobody)) == "user-not-found"  # type: ignore[misc]
    identity.link(ADMIN, link(ann))
    assert refusal(lambda: identity.link(ADMIN, link(bob))) == "already-linked"
    assert refusal(lambda: identity.link(ADMIN, link(ann))) == "already-linked"
    assert identity.resolve(ADMIN, name()).user_id == ann
    identity.link(ADMIN, link(bob, platform="telegram"))


LEVELS = [
    ("resolve", lambda of, who: of.resolve(who, name())),
    ("link", lambda of, who: of.link(who, link(str(uuid.uuid4())))),
    ("link", lambda of, who: of.unlink(who, name())),
    ("link", lambda of, who: of.list_links(who, str(uuid.uuid4()))),
    ("admin", lambda of, who: of.create_user(who, new())),
]


@pytest.mark.parametrize(("level", "use"), LEVELS)
@pytest.mark.parametrize("rows", [(), ("resolve",), ("link",), ("admin",), ("resolve", "link"), ("Admin", "all", "*")])
def test_each_function_needs_its_level_or_one_that_includes_it(
    identity: Identity, level: str, use: Callable[[Identity, Any], object], rows: tuple[str, ...]
) -> None:
    order = ("resolve", "link", "admin")
    enough = any(row in order and order.index(row) >= order.index(level) for row in rows)
    refused: HostError | None = None
    try:
        use(identity, may(*rows))
    except HostError as error:
        refused = error
    denied = refused is not None and refused.case == "capability-denied"
    assert denied is not enough
    if refused is not None and denied:
        assert refused.detail.endswith(f'"{level}"]')
        assert "[capabilities] identity = [" in refused.detail


def test_without_a_level_nothing_is_told_of_what_is_wrong_besides(identity: Identity) -> None:
    assert refusal(lambda: identity.resolve(NOBODY, name("", ""))) == "capability-denied"
    assert refusal(lambda: identity.link(RESOLVE, link(""))) == "capability-denied"
    assert refusal(lambda: identity.create_user(LINK, new("a" * 1000))) == "capability-denied"
    assert may_identify(manifest(identity=("admin",)), "resolve") is None


BAD = ["", "a\nb", "\0", "\u202e", "a" * 257, "a" * 10**6]


@pytest.mark.parametrize("text", BAD)
def test_texts_that_are_none_are_refused_everywhere(identity: Identity, text: str) -> None:
    user = identity.create_user(ADMIN, new()).user_id
    for use in (
        lambda: identity.resolve(ADMIN, name(platform=text)),
        lambda: identity.resolve(ADMIN, name(platform_user_id=text)),
        lambda: identity.unlink(ADMIN, name(platform=text)),
        lambda: identity.unlink(ADMIN, name(platform_user_id=text)),
        lambda: identity.link(ADMIN, link(user, platform=text)),
        lambda: identity.link(ADMIN, link(user, platform_user_id=text)),
        lambda: identity.link(ADMIN, link(text)),
        lambda: identity.list_links(ADMIN, text),
    ):
        assert refusal(use) == "invalid-input"
    if text:
        assert refusal(lambda: identity.create_user(ADMIN, new(text))) == "invalid-input"
        assert refusal(lambda: identity.link(ADMIN, link(user, method=text))) == "invalid-input"


def test_the_longest_texts_are_taken_as_they_are(identity: Identity) -> None:
    user = identity.create_user(ADMIN, new("ü" * 256)).user_id
    identity.link(ADMIN, link(user, "p" * 64, "ü" * 256, "m" * 256))
    assert identity.resolve(ADMIN, name("p" * 64, "ü" * 256)).display_name == "ü" * 256
    assert refusal(lambda: identity.resolve(ADMIN, name("p" * 65))) == "invalid-input"


def test_users_outlive_the_host(tmp_path: Path) -> None:
    database = Database.open(tmp_path)
    identity = Identity(IdentityStore(database))
    user = identity.create_user(ADMIN, new()).user_id
    identity.link(ADMIN, link(user))
    database.close()
    database = Database.open(tmp_path)
    assert Identity(IdentityStore(database)).resolve(RESOLVE, name()).user_id == user
    database.close()


def test_a_database_that_fails_is_a_typed_error(database: Database, identity: Identity) -> None:
    database.close()
    for use in (
        lambda: identity.resolve(ADMIN, name()),
        lambda: identity.link(ADMIN, link("u")),
        lambda: identity.unlink(ADMIN, name()),
        lambda: identity.create_user(ADMIN, new()),
        lambda: identity.list_links(ADMIN, "u"),
    ):
        assert refusal(use) == "store-unavailable"


def test_targets_are_named_whole_so_that_secrets_in_them_are_found(identity: Identity) -> None:
    secrets, secret = SecretStore(None), "s3cr3t-" * 5
    secrets.hide(secret)
    functions = identity.functions()
    for before in (40, 60, 230, 250):
        text = "x" * before + secret
        for key, argument in (
            ("identity-resolve", name(text, text)),
            ("identity-link", link("u", text, text)),
            ("identity-unlink", name(text, text)),
            ("identity-create-user", new(text)),
            ("identity-list-links", text),
        ):
            audited = functions[key].audited
            assert audited is not None
            assert "s3c" not in secrets.redacted(audited(argument)), (key, before)
    audited = functions["identity-create-user"].audited
    assert audited is not None
    assert audited(new(None)) == ""
