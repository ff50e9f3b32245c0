"""What is remembered of people's decisions, whose it is, and how a policy answers where nobody can be asked."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from people import Says, Town, asked_and_answered, call, in_no_time, refused, request, town

from astrid_host.hostcalls.approval import TOPIC, Approval, Asked, mend
from astrid_host.payloads import parse
from astrid_host.stores import Database
from astrid_host.stores.approvals import ApprovalStore

WORKSPACE = "/work"


@pytest.fixture
def store(database: Database) -> ApprovalStore:
    return ApprovalStore(database)


@pytest.mark.parametrize("decision", ["approve_session", "approve_always"])
async def test_what_was_allowed_for_longer_is_not_asked_again(store: ApprovalStore, decision: str) -> None:
    async with town() as here:
        here.client(TOPIC)
        approval = Approval(here.questions, store, WORKSPACE)
        await asked_and_answered(here, approval, decision)
        published = here.bus.seq
        for resource in ("git status -s", "git status", "git status --long x"):
            assert (await approval.request_approval(call(), request(resource=resource))).decision == "allowance"
        assert here.bus.seq == published
        for resource in ("git status; id", "git status & id", "git status $x", "git push", "git statusx"):
            assert await asked_and_answered(here, approval, "deny", what=request(resource=resource)) == "denied"
        other_words = request("delete everything", "git status -s")
        assert await asked_and_answered(here, approval, "deny", what=other_words) == "denied"


async def test_what_was_allowed_once_or_denied_is_asked_again(store: ApprovalStore) -> None:
    async with town() as here:
        here.client(TOPIC)
        approval = Approval(here.questions, store, WORKSPACE)
        for decision, expected in (("approve", "approved"), ("deny", "denied"), ("approve", "approved")):
            assert await asked_and_answered(here, approval, decision) == expected
        assert store.all() == []


@pytest.mark.parametrize("decision", ["approve_session", "approve_always"])
@pytest.mark.parametrize(
    "other",
    [
        call("bob"),
        call(id="other"),
        call(wasm_hash="bb"),
    ],
    ids=["another principal", "another capsule", "another build of it"],
)
async def test_an_allowance_is_nobody_elses(store: ApprovalStore, decision: str, other: Any) -> None:
    async with town() as here:
        here.client(TOPIC)
        approval = Approval(here.questions, store, WORKSPACE)
        await asked_and_answered(here, approval, decision)
        assert await asked_and_answered(here, approval, "deny", other) == "denied"
        elsewhere = Approval(here.questions, store, "/elsewhere")
        assert await asked_and_answered(here, elsewhere, "deny") == "denied"
        assert (await approval.request_approval(call(), request())).decision == "allowance"


async def test_always_outlives_the_host_and_a_session_does_not(tmp_path: Path) -> None:
    for decision, again in (("approve_session", "denied"), ("approve_always", "allowance")):
        async with town() as here:
            here.client(TOPIC)
            database = Database.open(tmp_path)
            await asked_and_answered(here, Approval(here.questions, ApprovalStore(database), WORKSPACE), decision)
            database.close()
            database = Database.open(tmp_path)
            approval = Approval(here.questions, ApprovalStore(database), WORKSPACE)
            if again == "allowance":
                assert (await approval.request_approval(call(), request())).decision == again
            else:
                assert await asked_and_answered(here, approval, "deny") == again
            database.close()


async def test_a_revoked_allowance_is_asked_again_at_once(store: ApprovalStore) -> None:
    async with town() as here:
        here.client(TOPIC)
        approval = Approval(here.questions, store, WORKSPACE)
        await asked_and_answered(here, approval, "approve_always")
        (row,) = store.all()
        assert (row.action, row.resource) == ("git status", None)
        store.revoke(row.id)
        assert await asked_and_answered(here, approval, "deny") == "denied"


async def test_what_has_an_operator_is_asked_each_time_and_never_remembered(store: ApprovalStore) -> None:
    async with town() as here:
        here.client(TOPIC)
        approval = Approval(here.questions, store, WORKSPACE)
        for decision, expected in (("approve_always", "approved-always"), ("approve_session", "approved-session")):
            for resource in ("ls | sh", "ls $x", "ls & id"):
                got = await asked_and_answered(here, approval, decision, what=request("ls", resource))
                assert got == expected
        assert store.all() == []


async def test_an_action_that_is_no_part_of_its_resource_is_allowed_for_that_resource_only(
    store: ApprovalStore,
) -> None:
    async with town() as here:
        here.client(TOPIC)
        approval = Approval(here.questions, store, WORKSPACE)
        await asked_and_answered(here, approval, "approve_always", what=request("delete", "cwd://a"))
        assert (await approval.request_approval(call(), request("delete", "cwd://a"))).decision == "allowance"
        for what in (request("delete", "cwd://b"), request("read", "cwd://a"), request("", "delete x")):
            assert await asked_and_answered(here, approval, "deny", what=what) == "denied"


@pytest.mark.parametrize(("verdict", "expected"), [(True, "approved"), (False, "denied")])
async def test_a_policy_answers_before_anybody_is_asked_and_nothing_of_it_is_kept(
    store: ApprovalStore, verdict: bool, expected: str
) -> None:
    async with town() as here:
        here.client(TOPIC)
        policy = Says(verdict)
        approval = Approval(here.questions, store, WORKSPACE, policy)
        published = here.bus.seq
        message = SimpleNamespace(
            data=parse('{"type":"tool_execute_request","call_id":"c1","tool_name":"t","arguments":{}}').data
        )
        assert (await approval.request_approval(call(message=message), request())).decision == expected
        assert policy.asked == [Asked("shell", "alice", "git status", "git status -s", "c1")]
        assert here.bus.seq == published
        assert store.all() == []


async def test_a_policy_may_let_it_be_asked_and_comes_after_allowances(store: ApprovalStore) -> None:
    async with town() as here:
        here.client(TOPIC)
        policy = Says(None)
        approval = Approval(here.questions, store, WORKSPACE, policy)
        assert await asked_and_answered(here, approval, "approve_session") == "approved-session"
        policy.verdict = False
        assert (await approval.request_approval(call(), request())).decision == "allowance"
        assert [asked.call_id for asked in policy.asked] == [None]


async def test_a_database_that_fails_refuses_and_an_always_that_cannot_be_kept_is_once(
    database: Database, store: ApprovalStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with town() as here:
        here.client(TOPIC)
        approval = Approval(here.questions, store, WORKSPACE)
        with monkeypatch.context() as patched:
            patched.setattr(store, "of", lambda _holder: [])
            database.close()
            assert await asked_and_answered(here, approval, "approve_always") == "approved"
            assert "only once" in caplog.text
        case, _ = await refused(approval.request_approval(call(), request()))
        assert case == "store-unavailable"


def test_the_session_allowances_of_one_holder_have_a_bound_and_then_the_oldest_gives_way(
    store: ApprovalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("astrid_host.hostcalls.approval.SESSION_ALLOWANCES", 3)

    async def body(here: Town) -> None:
        here.client(TOPIC)
        approval = Approval(here.questions, store, WORKSPACE)
        for number in range(4):
            await asked_and_answered(here, approval, "approve_session", what=request(f"a{number}", f"a{number}"))
        for number in (3, 2, 1):
            assert (
                await approval.request_approval(call(), request(f"a{number}", f"a{number} x"))
            ).decision == "allowance"
        assert await asked_and_answered(here, approval, "deny", what=request("a0", "a0")) == "denied"

    in_no_time(body)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (Asked("shell", "default", "git status", "git status -s", None), "approvals allow shell 'git status'"),
        (Asked("shell", "bob", "ls", "ls", None), "approvals allow shell ls --principal bob"),
        (
            Asked("it's", "default", "write", "cwd://a b", None),
            """approvals allow 'it'"'"'s' write --resource 'cwd://a b'""",
        ),
        (Asked("shell", "default", "ls", "ls | sh", None), "--yes"),
    ],
)
def test_a_denial_says_how_to_allow_it_where_nobody_can_be_asked(asked: Asked, expected: str) -> None:
    assert mend(asked).endswith(expected) or expected == "--yes"
    assert "--yes" in mend(asked)
