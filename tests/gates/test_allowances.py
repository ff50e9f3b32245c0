"""Allowances: which requests an earlier decision covers, by the exact text that is to run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astrid_host.gates.allowances import (
    Allowance,
    allowance_for,
    covered,
    first_hidden,
    first_unclear,
    has_operator,
    request_fault,
)

GIT_STATUS = Allowance("git status")


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        ("git status", True),
        ("git status -s", True),
        ("git status  -s", True),
        ("git status ", True),
        ("git status -- 'a b'", True),
        ("git status ü", True),
        ("git status HEAD@{1}", True),
        ("git status *.py", True),
        ("git status ~/x", True),
        ("git status a\\ b", True),
        # Not the words that were allowed.
        ("", False),
        ("git", False),
        ("git statu", False),
        ("git statuses", False),
        ("git status-all", False),
        ("git  status", False),
        (" git status", False),
        ("Git status", False),
        ("/usr/bin/git status", False),
        ("X=1 git status", False),
        ("git\tstatus", False),
        ("git status\u200b", False),
        ("git status\u00a0-s", False),
        # More than one command.
        ("git status;id", False),
        ("git status ; id", False),
        ("git status & id", False),
        ("git status &", False),
        ("git status && id", False),
        ("git status || id", False),
        ("git status | sh", False),
        ("git status |& sh", False),
        ("git status > ~/.bashrc", False),
        ("git status < /etc/passwd", False),
        ("git status 2>&1", False),
        ("git status <(id)", False),
        ("git status $(id)", False),
        ("git status `id`", False),
        ("git status $IFS", False),
        ("git status ${x:-id}", False),
        ("git status $'\\n'", False),
        ("git status *(e:id:)", False),
        ("git status =(id)", False),
        ("git status \nid", False),
        ("git status\nid", False),
        ("git status \rid", False),
        ("git status \0id", False),
        ("git status \x0bid", False),
        ("git status \x85id", False),
        ("git status \u2028id", False),
        ("git status \u2029id", False),
    ],
)
def test_the_words_that_were_allowed_cover_themselves_and_more_words(resource: str, expected: bool) -> None:
    assert GIT_STATUS.covers("git status", resource) is expected
    assert GIT_STATUS.covers("git", resource) is expected
    assert covered([Allowance("other"), GIT_STATUS], "git status", resource) is expected
    assert not covered([], "git status", resource)
    assert not GIT_STATUS.covers("whatever the capsule calls it", resource)


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("git", True),
        ("git status", True),
        ("git status -s", True),
        ("delete everything", False),
        ("status", False),
        ("gi", False),
        ("git  status", False),
        ("git status -s -x", False),
        ("git ", False),
        ("", False),
    ],
)
def test_an_action_that_says_something_else_than_its_resource_is_not_covered(action: str, expected: bool) -> None:
    assert Allowance("git").covers(action, "git status -s") is expected


@pytest.mark.parametrize(
    ("action", "resource", "expected"),
    [
        ("write", "cwd://a.txt", True),
        ("write", "cwd://a.txt2", False),
        ("write", "cwd://a.txt ", False),
        ("write", "CWD://a.txt", False),
        ("read", "cwd://a.txt", False),
        ("write ", "cwd://a.txt", False),
    ],
)
def test_an_allowance_of_one_resource_covers_that_one_for_that_action(
    action: str, resource: str, expected: bool
) -> None:
    assert Allowance("write", "cwd://a.txt").covers(action, resource) is expected


def test_patterns_in_what_was_allowed_mean_themselves() -> None:
    for action in ("git *", "*", "?it", "[a-z]*", "g.t", "git %", "git _"):
        assert not Allowance(action).covers("git", "git status")
        assert Allowance(action).covers(action, action)
        assert Allowance(action).covers(action, f"{action} -s")


def test_nothing_is_allowed_by_no_words_at_all() -> None:
    for resource in ("", " ", " rm", "rm"):
        assert not Allowance("").covers("", resource)
        assert not Allowance("").covers("rm", resource)


@pytest.mark.parametrize(
    ("action", "resource", "expected"),
    [
        ("git status", "git status -s", Allowance("git status")),
        ("git status", "git status", Allowance("git status")),
        ("write", "cwd://a.txt", Allowance("write", "cwd://a.txt")),
        ("git", "gitk", Allowance("git", "gitk")),
        ("", "ls", Allowance("", "ls")),
        ("ls", "ls | sh", None),
        ("ls | sh", "ls | sh", None),
        ("ls", "ls\nid", None),
    ],
)
def test_what_is_remembered_is_the_words_or_else_the_one_resource(
    action: str, resource: str, expected: Allowance | None
) -> None:
    assert allowance_for(action, resource) == expected


def test_it_reads_as_what_it_covers() -> None:
    assert str(GIT_STATUS) == "git status *"
    assert str(Allowance("write", "cwd://a.txt")) == "write: cwd://a.txt"


OPERATORS = st.sampled_from([*";&|`$<>()\n\r\0\t\x1b\x7f\x85\u2028\u2029", "&&", "||", "$(", "${", "<(", ">>"])
TEXTS = st.text(max_size=40)
WORDS = st.text(
    st.characters(exclude_categories=("C", "Z"), exclude_characters=";&|`$<>()"), min_size=1, max_size=12
).filter(lambda text: first_unclear(text) is None)
ALLOWANCES = st.builds(Allowance, TEXTS, st.none() | TEXTS)


@given(TEXTS, OPERATORS, TEXTS, TEXTS, ALLOWANCES)
def test_no_allowance_covers_a_text_with_an_operator(
    before: str, operator: str, after: str, action: str, allowance: Allowance
) -> None:
    resource = before + operator + after
    assert has_operator(resource)
    assert not allowance.covers(action, resource)
    for made in (Allowance(before), Allowance(resource), Allowance(action, resource), Allowance(before.rstrip(" "))):
        assert not made.covers(action, resource)
    assert allowance_for(action, resource) is None


@given(TEXTS, TEXTS)
def test_what_is_remembered_covers_what_was_asked(action: str, resource: str) -> None:
    allowance = allowance_for(action, resource)
    assert (allowance is None) == (has_operator(resource) or first_unclear(resource) is not None)
    if allowance is not None:
        assert allowance.covers(action, resource)


@given(ALLOWANCES, TEXTS, TEXTS)
def test_what_is_covered_begins_with_what_was_allowed(allowance: Allowance, action: str, resource: str) -> None:
    if allowance.covers(action, resource):
        assert resource == allowance.resource or resource.startswith(allowance.action)


@given(st.lists(WORDS, min_size=1, max_size=4), st.lists(WORDS, max_size=4))
def test_more_words_are_covered_and_other_words_are_not(words: list[str], more: list[str]) -> None:
    allowance = Allowance(" ".join(words))
    assert allowance.covers(words[0], " ".join([*words, *more]))
    assert not allowance.covers(allowance.action, "".join([*words, "x", *more]))
    assert not allowance.covers("x", " ".join(["x", *words, *more])) or words[0] == "x"


@pytest.mark.parametrize("text", ["", "git status", "ü ½ 漢字 👩🚀", "a  b"])
def test_what_is_seen_as_it_is_may_be_asked_about(text: str) -> None:
    assert first_hidden(text) is None
    assert request_fault(text, text) is None


@pytest.mark.parametrize(
    "character",
    [*"\0\t\n\r\x1b\x7f\x85\x9b", "\u2028", "\u2029", "\u200b", "\u200e", "\u202e", "\u2066", "\ufeff", "\U000e0041"],
)
def test_what_is_not_seen_can_be_asked_about_and_is_never_remembered(character: str) -> None:
    assert first_hidden(f"ab{character}c") == 2
    assert_is_never_remembered(character)


# By range, first and last: fillers of Hangul, joiners and marks, selectors of variations, tags; spaces that are none.
INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b\u180e\u180f\u200c\u200d\u200f\u2060\u2064\u206f\u2800\u3164\ufe00\ufe0f\uffa0"
    "\ufff0\U0001bca0\U0001d173\U000e0000\U000e007f\U000e0100\U000e0fff\u00a0\u1680\u2000\u200a\u202f\u205f\u3000"
)


@pytest.mark.parametrize("character", INVISIBLE, ids=[f"U+{ord(character):04X}" for character in INVISIBLE])
def test_what_looks_like_nothing_or_like_a_space_can_be_asked_about_and_is_never_remembered(character: str) -> None:
    assert_is_never_remembered(character)


@pytest.mark.parametrize("name", ["👩\u200d🚀", "❤\ufe0f", "می\u200cخواهم", "a\u00a0b"])
def test_a_name_may_have_what_its_script_needs(name: str) -> None:
    assert first_hidden(name) is None


def assert_is_never_remembered(character: str) -> None:
    resource = f"git a{character}b"
    assert request_fault(resource, resource) is None
    assert first_unclear(resource) == 5
    assert allowance_for("git", resource) is None
    assert not Allowance("git").covers("git", resource)
    assert not Allowance(resource, resource).covers(resource, resource)


def test_what_is_too_long_is_a_fault_and_not_cut() -> None:
    assert request_fault("a" * 4096, "b" * 65_536) is None
    assert request_fault("ü" * 2048, "ü" * 32_768) is None
    for action, resource in (("a" * 4097, ""), ("", "b" * 65_537), ("", "ü" * 32_769)):
        fault = request_fault(action, resource)
        assert fault is not None
        assert str(max(len(action.encode()), len(resource.encode()))) in fault
