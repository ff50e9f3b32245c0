"""Topic contracts: which roles a manifest wants, which of its rows do not count, and which handlers need consent."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astrid_host.bundled import capsules_folder, contracts_files
from astrid_host.errors import LoadError
from astrid_host.gates import Contracts
from astrid_host.manifest import Manifest, Package, PublishRow, SubscribeRow, load
from astrid_host.topics import bus_matches, covers, interceptor_matches, overlap, pattern_of

CONTRACTS = Contracts.read(contracts_files())
TOOL = ["tool.v1.execute.*.result", "tool.v1.response.describe.*"]
BUNDLED = sorted(path.parent.name for path in capsules_folder().glob("*/Capsule.toml"))


def handling(*patterns: str, publish: list[str] | None = None, guard: bool = False) -> Manifest:
    return Manifest(
        Package("x", "1.0.0"),
        publish={topic: PublishRow(topic) for topic in publish or []},
        subscribe=tuple(SubscribeRow(pattern, handler="act", guard=guard) for pattern in patterns),
    )


def test_a_plain_tool_wants_no_role_and_needs_no_consent() -> None:
    plain = handling("tool.v1.execute.my_tool", "tool.v1.request.describe", publish=TOOL)
    assert CONTRACTS.wanted(plain) == {}
    assert CONTRACTS.unheard(plain, ()) == {}
    assert CONTRACTS.intercepted(plain) == []


@pytest.mark.parametrize("name", BUNDLED)
def test_every_row_of_a_bundled_capsule_counts_in_its_roles(name: str) -> None:
    found = load(capsules_folder() / name / "Capsule.toml")
    roles = CONTRACTS.roles_of(name)
    assert CONTRACTS.unheard(found, roles) == {}


WANTED = [
    (["tool.v1.execute.*", "tool.v1.execute.result"], {"router"}),
    (["tool.v1.execute.write_file"], {"router"}),
    (["tool.v1.execute.*.result"], {"failures"}),
    (["agent.v1.response"], {"agent"}),
    (["astrid.v1.approval.response.*"], {"person"}),
    (["user.v1.prompt"], {"person"}),
    (["astrid.v1.request.*"], set()),
    (["astrid.v1.response.*"], {"host"}),
    (["my.own.topics.*"], set()),
    (["tool.v1.request.execute"], set()),
    (["registry.v1.response.*", "registry.v1.selection.*"], {"models"}),
]


@pytest.mark.parametrize(("rows", "roles"), WANTED)
def test_a_capsule_wants_the_roles_that_its_rows_need(rows: list[str], roles: set[str]) -> None:
    wanted = CONTRACTS.wanted(handling(publish=rows))
    assert set(wanted) == roles
    assert {row for reached in wanted.values() for row in reached} <= set(rows)
    assert CONTRACTS.unheard(handling(publish=rows), wanted) == {}


@pytest.mark.parametrize("row", ["*.*", "tool.*", "*.v1.*", "*.*.*.*"])
def test_a_broad_row_wants_every_role_that_it_reaches(row: str) -> None:
    wanted = CONTRACTS.wanted(handling(publish=[row]))
    assert wanted
    if row.startswith("*"):
        assert {"router", "person", "agent"} <= set(wanted)


CONSENT = [
    "tool.v1.execute.*",
    "tool.v1.request.execute",
    "tool.v1.execute.result",
    "tool.v1.execute.*.result",
    "tool.v1.execute.write_file.result",
    "user.v1.prompt",
    "user.v1.*",
    "llm.v1.request.generate.mine",
    "llm.v1.stream.*",
    "prompt_builder.v1.hook.before_build",
    "astrid.v1.approval",
    "astrid.v1.approval.response.*",
    "astrid.v1.elicit.x",
    "agent.v1.response",
    "session.v1.append",
    "*.*.*.*",
    "*.v1.*.*",
    "tool.*.execute.*",
    "astrid.v1.dispatch.failed.tool.v1.request.execute",
    "astrid.v1.dispatch.failed.user.v1.prompt",
]
FREE = [
    "tool.v1.execute.mine",
    "tool.v1.request.describe",
    "astrid.v1.capsules_loaded",
    "astrid.v1.watchdog.tick",
    "cli.v1.command.execute",
    "hook.v1.event.message_received",
    "my.own",
    "*.own",
    "astrid.v1.dispatch.failed.my.own",
]


def test_a_handler_on_what_is_meant_for_others_needs_consent() -> None:
    assert CONTRACTS.intercepted(handling(*CONSENT, *FREE)) == CONSENT


def test_of_contracts_the_first_that_covers_a_topic_holds() -> None:
    found = {topic: CONTRACTS.of(topic) for topic in ("tool.v1.execute.x", "tool.v1.execute.x.result", "my.own")}
    assert [contract and contract.topic for contract in found.values()] == [
        "tool.v1.execute.*",
        "tool.v1.execute.*.result",
        None,
    ]


@pytest.mark.parametrize(
    "text", ["role = 1", "[[contract]]\ntopic = 'a'\nspeakers = ['nobody']\n[role.x]\ntells = ''", "x = 1"]
)
def test_a_file_that_cannot_be_read_says_which_and_why(text: str, tmp_path: Path) -> None:
    path = tmp_path / "contracts.toml"
    path.write_text(text)
    with pytest.raises(LoadError, match=r"contracts\.toml"):
        Contracts.read([path])


segments = st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=4).map(".".join)
topics = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=6).map(".".join)


@given(segments, segments, topics)
def test_what_a_narrow_pattern_matches_the_wide_one_that_covers_it_matches_too(
    wide: str, narrow: str, topic: str
) -> None:
    if covers(pattern_of(wide), pattern_of(narrow)) and bus_matches(topic, narrow):
        assert bus_matches(topic, wide)
    if covers(pattern_of(wide), pattern_of(narrow, subtree=False)) and interceptor_matches(topic, narrow):
        assert bus_matches(topic, wide)


@given(segments, segments, topics)
def test_patterns_that_match_the_same_topic_overlap(one: str, other: str, topic: str) -> None:
    if bus_matches(topic, one) and bus_matches(topic, other):
        assert overlap(pattern_of(one), pattern_of(other))
    if bus_matches(topic, one) and interceptor_matches(topic, other):
        assert overlap(pattern_of(one), pattern_of(other, subtree=False))


@given(segments, segments)
def test_patterns_that_overlap_match_a_common_topic(one: str, other: str) -> None:
    first, second = pattern_of(one), pattern_of(other)
    if not overlap(first, second):
        return
    longest = max(len(part.segments) + part.subtree for part in (first, second))
    merged = []
    for place in range(longest):
        named = [p.segments[place] for p in (first, second) if place < len(p.segments) and p.segments[place] != "*"]
        merged.append(named[0] if named else "z")
    assert bus_matches(".".join(merged), one)
    assert bus_matches(".".join(merged), other)
