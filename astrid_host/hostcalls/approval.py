"""astrid:approval: asking a person before something is done.

What is asked is decided in this order: a text that is too long to be shown is refused; an earlier "session" or
"always" answers at once; the host's policy may answer, where nobody can be asked; else the question goes to whoever receives
`astrid.v1.approval`, and waits for 60 s. A question that nobody receives is denied at once. No manifest row is needed to ask.

What a person allows for longer than once belongs to the principal, the workspace and this very build of the capsule; "always" is
kept on disk. (Astrid, approval.)
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from typing import Protocol

import msgspec
import trio

from astrid_host.errors import HostError, StoreError
from astrid_host.gates.allowances import Allowance, allowance_for, covered, request_fault
from astrid_host.hostcalls.interface import Caller, Interface, Running, hostcall
from astrid_host.hostcalls.questions import Questions, Unseen
from astrid_host.payloads import ToolExecuteRequest
from astrid_host.payloads.kinds import ApprovalRequired
from astrid_host.payloads.kinds import ApprovalResponse as Answered
from astrid_host.stores.approvals import ApprovalStore, Holder
from astrid_host.topics import APPROVAL, APPROVAL_ANSWERS

log = logging.getLogger(__name__)

TOPIC, ANSWERS = APPROVAL, APPROVAL_ANSWERS
WAIT_S = 60.0
TARGET_CHARACTERS = 8192
SESSION_ALLOWANCES = 1024  # of one holder; then the oldest gives way
DENIED, APPROVED, SESSION, ALWAYS, ALLOWANCE = "denied", "approved", "approved-session", "approved-always", "allowance"
_DECISIONS = {"approve": APPROVED, "approve_session": SESSION, "approve_always": ALWAYS}


class ApprovalRequest(Protocol):
    """`approval-request`."""

    @property
    def action(self) -> str: ...
    @property
    def target_resource(self) -> str: ...


class ApprovalResponse(msgspec.Struct, gc=False):
    """`approval-response`."""

    decision: str


class Asked(msgspec.Struct, frozen=True):
    """A request as a policy sees it.

    Attributes:
        capsule: who asks.
        principal: on whose behalf.
        action: what it wants to do.
        resource: on what; of a command, all of it.
        call_id: of the tool call that the guest handles, if it handles one.
    """

    capsule: str
    principal: str
    action: str
    resource: str
    call_id: str | None


class Policy(Protocol):
    """Answers in place of a person, where there is none to ask."""

    def decide(self, asked: Asked) -> bool | None:
        """Whether a request is approved, once; None lets it be asked. On the trio thread; must not block."""
        ...


class Holding(Caller, Protocol):
    """The capsule that asks, with what allowances belong to."""

    @property
    def wasm_hash(self) -> str: ...


class Asking(Running, Protocol):
    """The call that asks."""

    @property
    def capsule(self) -> Holding: ...


def _target(request: ApprovalRequest) -> str:
    """All that is asked about: secrets are found in it before it is cut. What is longer is refused anyway."""
    return f"{request.action[:TARGET_CHARACTERS]}: {request.target_resource[:TARGET_CHARACTERS]}"


class Approval(Interface):
    """The host functions of astrid:approval.

    Args:
        questions: asks people.
        store: what was allowed for good.
        workspace: the folder that `cwd://` means, absolute and without links.
        policy: answers before anybody is asked; without one everything is asked.
        redacted: takes secrets out of what is logged, and of what people are asked; it leaves out nothing else.
    """

    wit = ("astrid:approval/host@1.0.0",)

    def __init__(
        self,
        questions: Questions,
        store: ApprovalStore,
        workspace: str,
        policy: Policy | None = None,
        redacted: Callable[[str], str] = str,
    ) -> None:
        self._questions = questions
        self._store = store
        self._workspace = workspace
        self._policy = policy
        self._redacted = redacted
        self._session: dict[Holder, dict[Allowance, None]] = {}

    @hostcall("request-approval", audited=_target, stands=True)
    async def request_approval(self, call: Asking, request: ApprovalRequest) -> ApprovalResponse:
        """Ask whether the caller may do something. Waits for 60 s at most, on no thread.

        Args:
            call: who asks.
            request: `action` of 4 KiB at most, which may be none, and `target-resource` of 64 KiB; all of both is shown, and
                they are matched and kept as they are.

        Returns:
            The decision: `allowance` when an earlier one covers it and nobody was asked; `denied` also when nobody could be.

        Raises:
            HostError: `invalid-input` for a text that is too long; `timeout` when nobody
                decided in time; `store-unavailable` when the database failed.

        Cancelled, with its call, it asks no more, and what is answered later has no effect; an "always" that is being kept is
        kept. (Astrid, approval.)
        """
        action, resource = request.action, request.target_resource
        capsule = call.capsule
        fault = request_fault(action, resource)
        if fault is not None:
            raise HostError("invalid-input", detail=f"{capsule.id} asks for approval, but {fault}")
        holder = Holder(call.principal, self._workspace, capsule.storage_id, capsule.wasm_hash)
        if self._allowed(holder, action, resource):
            return ApprovalResponse(ALLOWANCE)
        asked = Asked(capsule.id, call.principal, action, resource, _call_id(call))
        verdict = self._policy.decide(asked) if self._policy is not None else None
        if verdict is not None:
            return ApprovalResponse(APPROVED if verdict else DENIED)
        decision = await self._ask(call, asked)
        return ApprovalResponse(await self._remember(holder, asked, decision))

    def _allowed(self, holder: Holder, action: str, resource: str) -> bool:
        if covered(self._session.get(holder, ()), action, resource):
            return True
        try:
            kept = self._store.of(holder)
        except StoreError as error:
            raise HostError("store-unavailable", detail=str(error)) from error
        return covered((Allowance(*row) for row in kept), action, resource)

    async def _ask(self, call: Asking, asked: Asked) -> str:
        request_id = str(uuid.uuid4())
        question = ApprovalRequired(
            request_id,
            self._redacted(asked.action),
            self._redacted(asked.resource),
            f"Capsule '{asked.capsule}' requests approval",
        )

        def read(data: object) -> str | None:
            if not isinstance(data, Answered) or data.request_id != request_id:
                return None
            return _DECISIONS.get(data.decision, DENIED)

        try:
            decision = await self._questions.ask(call, (TOPIC,), question, ANSWERS + request_id, read, WAIT_S)
        except Unseen:
            log.warning("%s: denied, because nobody receives %s: %s", asked.capsule, TOPIC, self._redacted(mend(asked)))
            return DENIED
        if decision is None:
            raise HostError("timeout", detail=f"nobody decided on {asked.capsule}'s request within {WAIT_S:g} s")
        return decision

    async def _remember(self, holder: Holder, asked: Asked, decision: str) -> str:
        """Keep what was allowed for longer than once; returns what became of the decision."""
        if decision not in (SESSION, ALWAYS):
            return decision
        if any(self._redacted(text) != text for text in (asked.action, asked.resource)):
            log.info("%s: its request has a secret in it, so it is not kept and is asked for again", asked.capsule)
            return APPROVED
        allowance = allowance_for(asked.action, asked.resource)
        if allowance is None:
            log.info("%s: its request is no single plain command, so it is asked for again next time", asked.capsule)
            return decision
        if decision == SESSION:
            kept = self._session.setdefault(holder, {})
            kept[allowance] = None
            if len(kept) > SESSION_ALLOWANCES:
                del kept[next(iter(kept))]
            return decision
        try:
            # On a thread: another process may keep the database locked for a while.
            await trio.to_thread.run_sync(self._store.allow, holder, *allowance)
        except StoreError as error:
            log.error("%s: approved, but only once, because it cannot be kept: %s", asked.capsule, error)
            return APPROVED
        return decision


def mend(asked: Asked, options: str = "") -> str:
    """How to let a request through where nobody can be asked. The command for it, if there is one, comes last.

    Args:
        asked: what was asked for.
        options: of the command that allows it beforehand: for which workspace, in which state folder.
    """
    allowance = allowance_for(asked.action, asked.resource)
    if allowance is None:
        return "answer it on a terminal, or give --yes: what is no single plain command is always asked for"
    from shlex import quote

    words = ["astrid-host approvals allow", quote(asked.capsule), quote(allowance.action)]
    if allowance.resource is not None:
        words.append(f"--resource {quote(allowance.resource)}")
    if asked.principal != "default":
        words.append(f"--principal {quote(asked.principal)}")
    if options:
        words.append(options)
    return f"answer it on a terminal, give --yes, or allow it beforehand: {' '.join(words)}"


def _call_id(call: Running) -> str | None:
    data = call.message.data if call.message is not None else None
    return data.call_id if isinstance(data, ToolExecuteRequest) else None
