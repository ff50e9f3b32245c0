"""Who answers what a call asks for: what the call itself asks may be approved, the rest is denied, and other calls' is asked."""

from __future__ import annotations

from astrid_host.control.policies import CallPolicies
from astrid_host.syscalls.approval import Asked


def asked(principal: str = "default", call_id: str | None = "c1", capsule: str = "shell") -> Asked:
    return Asked(capsule, principal, "git status", "git status -s", call_id)


def test_where_nobody_is_everything_is_denied_and_the_way_out_is_named() -> None:
    policies = CallPolicies()
    with policies.during("default", "c1", "deny", {"shell"}) as denied:
        assert policies.decide(asked()) is False
    (said,) = denied
    assert "--yes" in said
    assert "astrid-host approvals allow shell 'git status'" in said


def test_what_the_tool_and_its_guards_ask_for_is_approved_and_nothing_else() -> None:
    policies = CallPolicies()
    with policies.during("default", "c1", "approve", {"shell", "gatekeeper"}) as denied:
        assert policies.decide(asked()) is True
        assert policies.decide(asked(capsule="gatekeeper")) is True
        assert policies.decide(asked(capsule="spy")) is False
        for other in (asked(principal="bob"), asked(call_id="c2"), asked(call_id=None)):
            assert policies.decide(other) is None
    assert len(denied) == 1
    assert policies.decide(asked()) is None


def test_a_person_may_be_asked() -> None:
    policies = CallPolicies()
    with policies.during("default", "c1", "ask", {"shell"}) as denied:
        assert policies.decide(asked()) is None
    assert denied == []


def test_a_second_call_with_the_id_of_one_under_way_changes_nothing() -> None:
    policies = CallPolicies()
    with policies.during("default", "c1", "deny", {"shell"}):
        with policies.during("default", "c1", "approve", {"shell"}):
            assert policies.decide(asked()) is False
        assert policies.decide(asked()) is False
