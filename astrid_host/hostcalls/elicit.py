"""astrid:elicit: asking a person for a value while a capsule is installed or upgraded.

The question goes out on `astrid.v1.elicit` and on `astrid.v1.elicit.<request id>`, because some clients subscribe to the one and
some to what is below it, and waits for 120 s. A secret goes from the answer into the host's store of secrets: no guest gets it.
A question that nobody receives is cancelled at once. (Astrid, elicit.)
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from typing import Literal, Protocol

import trio

from astrid_host.abi import Variant
from astrid_host.errors import HostError, StoreError
from astrid_host.gates.allowances import first_hidden
from astrid_host.hostcalls.interface import Interface, Running, hostcall
from astrid_host.hostcalls.questions import Questions, Unseen
from astrid_host.payloads.kinds import ElicitRequest as Question
from astrid_host.payloads.kinds import ElicitResponse as Answered
from astrid_host.payloads.kinds import EnumField, OnboardingField

log = logging.getLogger(__name__)

TOPIC = "astrid.v1.elicit"
ANSWERS = "astrid.v1.elicit.response."
WAIT_S = 120.0
KEY_CHARACTERS = 256
TEXT_CHARACTERS = 4096  # of a description, a default, an option
OPTIONS = 256
STORED = Variant("secret-stored", None)


class Secrets(Protocol):
    """Where secrets are kept. May block, on a keyring; raises StoreError when it fails."""

    def set(self, principal: str, capsule: str, key: str, value: str) -> object: ...
    def has(self, principal: str, capsule: str, key: str) -> bool: ...


class ElicitRequest(Protocol):
    """`elicit-request`."""

    @property
    def kind(self) -> Literal["text", "secret", "select", "array"]: ...
    @property
    def key(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def options(self) -> list[str] | None: ...
    @property
    def default_value(self) -> str | None: ...


class Elicit(Interface):
    """The host functions of astrid:elicit.

    Args:
        questions: asks people.
        secrets: where secrets are kept.
        in_lifecycle: whether a call is one of `astrid-install` or `astrid-upgrade`.
    """

    wit = ("astrid:elicit/host@1.0.0",)

    def __init__(self, questions: Questions, secrets: Secrets, in_lifecycle: Callable[[Running], bool]) -> None:
        self._questions = questions
        self._secrets = secrets
        self._in_lifecycle = in_lifecycle

    @hostcall("elicit")
    async def elicit(self, call: Running, request: ElicitRequest) -> Variant:
        """Ask for one value. Waits for 120 s at most, on no thread.

        Args:
            call: who asks.
            request: `key` has 1 to 256 characters; every other text has 4,096 at most. `options` are needed for `select`, 256 at
                most, and count for nothing else.

        Returns:
            `elicit-response`: `value` for text and a choice, `values` for an array, `secret-stored` for a secret.

        Raises:
            HostError: `not-in-lifecycle` outside of install and upgrade; `invalid-input` for a text that is too long, a choice
                without options, an answer that is not one of them, and an empty secret; `timeout` without an answer in time;
                `cancelled` for one without a value, and when nobody receives the question; `store-unavailable` when a secret
                cannot be kept.

        Cancelled, with its call, it asks no more; a secret that is being stored is stored. (Astrid, elicit.)
        """
        if not self._in_lifecycle(call):
            detail = f"{call.capsule.id} may ask for values in astrid-install and astrid-upgrade only"
            raise HostError("not-in-lifecycle", detail=detail)
        field = _field(call.capsule.id, request)
        answer = await self._ask(call, field)
        if request.kind == "array":
            if answer.values is None:
                raise _cancelled(call, request.key)
            return Variant("values", answer.values)
        if answer.value is None:
            raise _cancelled(call, request.key)
        if request.kind == "secret":
            await self._keep(call, request.key, answer.value)
            return STORED
        if request.kind == "select" and answer.value not in (request.options or ()):
            detail = f"what was chosen for {request.key!r} is not one of the options: {answer.value[:64]!r}"
            raise HostError("invalid-input", detail=detail)
        return Variant("value", answer.value)

    @hostcall("has-secret")
    async def has_secret(self, call: Running, key: str) -> bool:
        """Whether a secret of that key is kept for the capsule and the call's principal.

        Raises:
            HostError: `invalid-input` for a key that is none; `store-unavailable` when the store fails.

        Cancelled, it returns when the store has answered.
        """
        _check_key(call.capsule.id, key)
        try:
            return await trio.to_thread.run_sync(self._secrets.has, call.principal, call.capsule.storage_id, key)
        except StoreError as error:
            raise HostError("store-unavailable", detail=str(error)) from error

    async def _ask(self, call: Running, field: OnboardingField) -> Answered:
        request_id = uuid.uuid4()

        def read(data: object) -> Answered | None:
            return data if isinstance(data, Answered) and data.request_id == request_id else None

        topics = (TOPIC, f"{TOPIC}.{request_id}")
        question = Question(request_id, call.capsule.id, field)
        try:
            answer = await self._questions.ask(call, topics, question, f"{ANSWERS}{request_id}", read, WAIT_S)
        except Unseen:
            detail = (
                f"{call.capsule.id} asks for {field.key!r} and nobody receives {TOPIC}: install it where somebody can answer, or "
                f"set it: astrid-host config set {call.capsule.id}.{field.key}"
            )
            log.warning("%s", detail)
            raise HostError("cancelled", detail=detail) from None
        if answer is None:
            raise HostError("timeout", detail=f"nobody gave {call.capsule.id} its {field.key!r} within {WAIT_S:g} s")
        return answer

    async def _keep(self, call: Running, key: str, value: str) -> None:
        if not value:
            raise HostError("invalid-input", detail=f"the secret that was given for {key!r} is empty")
        try:
            await trio.to_thread.run_sync(self._secrets.set, call.principal, call.capsule.storage_id, key, value)
        except StoreError as error:
            raise HostError("store-unavailable", detail=str(error)) from error


def _field(capsule: str, request: ElicitRequest) -> OnboardingField:
    """What is asked, as clients know it."""
    _check_key(capsule, request.key)
    options = request.options or [] if request.kind == "select" else []
    default = request.default_value if request.kind != "secret" else None  # a secret is nobody's suggestion
    if any(len(text) > TEXT_CHARACTERS for text in (request.description, default or "", *options)):
        raise HostError("invalid-input", detail=f"{capsule} asks with a text of more than {TEXT_CHARACTERS} characters")
    if request.kind == "select" and not 0 < len(options) <= OPTIONS:
        detail = f"{capsule} asks to choose among {len(options)} options: expected 1 to {OPTIONS}"
        raise HostError("invalid-input", detail=detail)
    types: dict[str, Literal["Text", "Secret", "Array"] | EnumField] = {
        "text": "Text",
        "secret": "Secret",
        "select": EnumField(options),
        "array": "Array",
    }
    prompt = request.description or request.key
    return OnboardingField(request.key, prompt, types[request.kind], request.description or None, default)


def _check_key(capsule: str, key: str) -> None:
    if not 0 < len(key) <= KEY_CHARACTERS or first_hidden(key) is not None:
        detail = f"{capsule} names a value {key[:64]!r}: expected 1 to {KEY_CHARACTERS} characters that can be seen"
        raise HostError("invalid-input", detail=detail)


def _cancelled(call: Running, key: str) -> HostError:
    return HostError("cancelled", detail=f"{call.capsule.id} was given no value for {key!r}")
