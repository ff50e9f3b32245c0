"""Who answers what a call asks for: what the call itself asks may be approved, the rest is denied, and other calls' is asked."""

from __future__ import annotations

from astrid_host.control.policies import CallPolicies
from astrid_host.hostcalls.approval import Asked
from astrid_host.tools import Askers

ASKERS = Askers(frozenset({"shell"}), frozenset({"gatekeeper"}))


def asked(
    principal: str = "default", call_id: str | None = "c1", capsule: str = "shell", action: str = "git status"
) -> Asked:
    return Asked(capsule, principal, action, "git status -s", call_id)


def test_where_nobody_is_everything_is_denied_and_the_way_out_is_named() -> None:
    policies = CallPolicies()
    with policies.during("default", "c1", "deny", "run", ASKERS) as denied:
        assert policies.decide(asked()) is False
    (said,) = denied
    assert "--yes" in said
    assert "astrid-host approvals allow shell 'git status'" in said


def test_what_the_tool_and_its_guards_ask_for_is_approved_and_nothing_else() -> None:
    policies = CallPolicies()
    with policies.during("default", "c1", "approve", "run", ASKERS) as denied:
        assert policies.decide(asked()) is True
        assert policies.decide(asked(capsule="gatekeeper", action="run")) is True
        assert policies.decide(asked(capsule="gatekeeper", action="write_file")) is False, "it was not called"
        assert policies.decide(asked(capsule="spy")) is False
        for other in (asked(principal="bob"), asked(call_id="c2"), asked(call_id=None)):
            assert policies.decide(other) is None
    assert len(denied) == 2
    assert policies.decide(asked()) is None


def test_a_person_may_be_asked() -> None:
    policies = CallPolicies()
    with policies.during("default", "c1", "ask", "run", ASKERS) as denied:
        assert policies.decide(asked()) is None
    assert denied == []


def test_a_second_call_with_the_id_of_one_under_way_changes_nothing() -> None:
    policies = CallPolicies()
    with policies.during("default", "c1", "deny", "run", ASKERS):
        with policies.during("default", "c1", "approve", "run", ASKERS):
            assert policies.decide(asked()) is False
        assert policies.decide(asked()) is False
