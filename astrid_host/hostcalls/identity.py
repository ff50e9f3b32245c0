"""astrid:identity: which user of ours somebody on another platform is.

A capsule needs `[capabilities] identity`: `resolve` to ask, `link` to say and to see whose a name is, `admin` to make users; each
includes those before it. Without it every function refuses before it looks at anything. Functions are plain; what they change
is on disk when they return. (Astrid, identity.)
"""

from __future__ import annotations

import datetime
from typing import Protocol

import msgspec

from astrid_host.errors import HostError, StoreError
from astrid_host.gates.allowances import first_hidden
from astrid_host.gates.identity import Level, may_identify
from astrid_host.hostcalls.interface import Interface, Running, hostcall
from astrid_host.stores.identities import IdentityStore

PLATFORM_CHARACTERS = 64
NAME_CHARACTERS = 256


class PlatformName(Protocol):
    """`identity-resolve-request` and `identity-unlink-request`."""

    @property
    def platform(self) -> str: ...
    @property
    def platform_user_id(self) -> str: ...


class LinkRequest(PlatformName, Protocol):
    """`identity-link-request`."""

    @property
    def astrid_user_id(self) -> str: ...
    @property
    def method(self) -> str: ...


class CreateUserRequest(Protocol):
    """`identity-create-user-request`."""

    @property
    def display_name(self) -> str | None: ...


class Resolved(msgspec.Struct, gc=False):
    """`identity-resolve-response`."""

    user_id: str
    display_name: str | None


class Created(msgspec.Struct, gc=False):
    """`identity-create-user-response`."""

    user_id: str


class PlatformLink(msgspec.Struct, gc=False):
    """`platform-link`; `linked_at` is RFC 3339."""

    platform: str
    platform_user_id: str
    linked_at: str
    method: str


def _target(request: PlatformName) -> str:
    """All of it: the audit finds secrets in it, and cuts it then."""
    return f"{request.platform}:{request.platform_user_id}"


class Identity(Interface):
    """The host functions of astrid:identity.

    Args:
        store: the users.

    Each raises HostError `capability-denied` without its level, `invalid-input` for a text that is empty where one is needed, too
    long (64 characters of a platform, 256 of the rest) or cannot be seen, and `store-unavailable` when the store fails.
    """

    wit = ("astrid:identity/host@1.0.0",)

    def __init__(self, store: IdentityStore) -> None:
        self._store = store

    @hostcall("identity-resolve", audited=_target)
    def resolve(self, call: Running, request: PlatformName) -> Resolved:
        """The user behind a name on a platform; `link-not-found` when it is nobody's. Needs `resolve`."""
        _need(call, "resolve")
        _check_name(request)
        try:
            user = self._store.resolve(request.platform, request.platform_user_id)
        except StoreError as error:
            raise _failed(error) from error
        if user is None:
            raise _no_link(request)
        return Resolved(user.id, user.display_name)

    @hostcall("identity-link", audited=_target)
    def link(self, call: Running, request: LinkRequest) -> None:
        """Say that a name on a platform is a user's. `user-not-found` without that user; `already-linked` when the name belongs
        to somebody, be it the same one. Needs `link`."""
        _need(call, "link")
        _check_name(request)
        _check("the user's id", request.astrid_user_id, NAME_CHARACTERS)
        _check("the method", request.method, NAME_CHARACTERS, least=0)
        try:
            if self._store.find(request.astrid_user_id) is None:
                raise _no_user(request.astrid_user_id)
            linked = self._store.link(
                request.platform, request.platform_user_id, request.astrid_user_id, request.method
            )
        except StoreError as error:
            raise _failed(error) from error
        if not linked:
            detail = f"{request.platform_user_id!r} on {request.platform!r} is somebody's already: unlink it first"
            raise HostError("already-linked", detail=detail)

    @hostcall("identity-unlink", audited=_target)
    def unlink(self, call: Running, request: PlatformName) -> None:
        """Undo that; `link-not-found` when the name is nobody's. Needs `link`."""
        _need(call, "link")
        _check_name(request)
        try:
            unlinked = self._store.unlink(request.platform, request.platform_user_id)
        except StoreError as error:
            raise _failed(error) from error
        if not unlinked:
            raise _no_link(request)

    @hostcall("identity-create-user", audited=lambda request: request.display_name or "")
    def create_user(self, call: Running, request: CreateUserRequest) -> Created:
        """Make a user, and return its id, a UUID. Needs `admin`."""
        _need(call, "admin")
        if request.display_name is not None:
            _check("the display name", request.display_name, NAME_CHARACTERS, least=0)
        try:
            return Created(self._store.create(request.display_name).id)
        except StoreError as error:
            raise _failed(error) from error

    @hostcall("identity-list-links", audited=str)
    def list_links(self, call: Running, astrid_user_id: str) -> list[PlatformLink]:
        """The names of a user, by platform and name; `user-not-found` without that user. Needs `link`."""
        _need(call, "link")
        _check("the user's id", astrid_user_id, NAME_CHARACTERS)
        try:
            if self._store.find(astrid_user_id) is None:
                raise _no_user(astrid_user_id)
            links = self._store.links(astrid_user_id)
        except StoreError as error:
            raise _failed(error) from error
        return [
            PlatformLink(link.platform, link.platform_user_id, _rfc3339(link.linked_at), link.method) for link in links
        ]


def _need(call: Running, level: Level) -> None:
    denial = may_identify(call.capsule.manifest, level)
    if denial is not None:
        raise HostError(denial.case, detail=denial.detail)


def _check_name(request: PlatformName) -> None:
    _check("the platform", request.platform, PLATFORM_CHARACTERS)
    _check("the name on the platform", request.platform_user_id, NAME_CHARACTERS)


def _check(what: str, text: str, most: int, least: int = 1) -> None:
    if not least <= len(text) <= most:
        raise HostError("invalid-input", detail=f"{what} has {len(text)} characters: expected {least} to {most}")
    if first_hidden(text) is not None:
        raise HostError("invalid-input", detail=f"{what} has a character that cannot be seen: {text!r}")


def _rfc3339(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat()


def _no_link(request: PlatformName) -> HostError:
    return HostError("link-not-found", detail=f"{request.platform_user_id!r} on {request.platform!r} is nobody's name")


def _no_user(user: str) -> HostError:
    return HostError("user-not-found", detail=f"there is no user {user!r}")


def _failed(error: StoreError) -> HostError:
    # Where on the host its database lies is not the guest's to know.
    return HostError("store-unavailable", detail=str(error))
