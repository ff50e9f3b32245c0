"""The three matchers answer as Astrid's do: handlers' rows, subscriptions, and access rows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astrid_host.topics import acl_allows, bus_matches, check_topic, interceptor_matches, topic_fault, valid_segments

UUID = "0b8f7a52-6d3c-4f6e-9b1f-2f8f3c1f9a77"
SEGMENTS_20 = ".".join(["a"] * 20)
SEGMENTS_21 = ".".join(["a"] * 21)
SEGMENTS_22 = ".".join(["a"] * 22)

HANDLED = [
    ("user.prompt", "user.prompt"),
    ("llm.stream.anthropic", "llm.stream.anthropic"),
    ("ping", "ping"),
    ("tool.execute.search.result", "tool.execute.*.result"),
    ("tool.execute.code-run.result", "tool.execute.*.result"),
    ("foo.bar.baz", "*.bar.baz"),
    ("foo.bar.baz", "foo.bar.*"),
    ("a.b.c", "*.b.*"),
    ("x.b.z", "*.b.*"),
    ("tool.v1.execute.x", "tool.v1.execute.*"),
    ("tool.v1.execute.result", "tool.v1.execute.*"),
    ("x", "*"),
    ("a.*.b", "a.*.b"),
    ("A.b", "A.*"),
    ("a.b.c", "*.*.*"),
    ("hook.v1.event.before_tool_call", "hook.v1.event.before_tool_call"),
    ("llm.v1.stream.openai", "llm.v1.stream.*"),
    ("a-1.b_2", "a-1.*"),
    ("session.v1.response.get_messages.c1", "session.v1.response.get_messages.*"),
    ("1.2.3.4.5.6.7.8.9", "*.2.3.4.5.6.7.8.9"),
]
NOT_HANDLED = [
    ("tool.execute.result", "tool.execute.*.result"),
    ("user.prompt", "llm.stream.anthropic"),
    ("user.prompt.extra", "user.prompt"),
    ("user", "user.prompt"),
    ("ping", "pong"),
    ("x.c.z", "*.b.*"),
    ("a..b", "a.*.b"),
    ("a.x.b", "a..b"),
    (".a.b", "*.a.b"),
    ("x.a.b", ".a.b"),
    ("a.b.", "a.b.*"),
    ("a.b.x", "a.b."),
    (".", "*.*"),
    ("", ""),
    ("", "a"),
    ("a", ""),
    ("a.b.c.d", "a.b.*"),
    ("tool.v1.execute.x.result", "tool.v1.execute.*"),
    ("a.b", "*"),
    ("a", "a.*"),
    ("User.prompt", "user.prompt"),
    ("a.b", "a.b*"),
    ("ab.c", "a*.c"),
    ("a.b.c", "*.*"),
]
RECEIVED = [
    ("a.b.c", "a.b.c"),
    ("a.b.c", "a.b.*"),
    ("a.b.c.d", "a.b.*"),
    ("a.b.c", "a.*.c"),
    ("a.zz.c", "a.*.c"),
    (SEGMENTS_20, "a.*"),
    ("astrid.cli.input", "astrid.*"),
    ("astrid.v1.request.list_capsules", "astrid.v1.request.*"),
    ("astrid.v1.request.foo.bar", "astrid.v1.request.*"),
    ("astrid.cli.input", "astrid.*.input"),
    ("astrid.telegram.input", "astrid.*.input"),
    ("astrid.v1.admin.quota", "astrid.v1.admin.*"),
    ("astrid.v1.admin.agent.list", "astrid.v1.admin.*"),
    ("astrid.v1.admin.auth.pair.issue", "astrid.v1.admin.*"),
    ("tool.v1.execute.read_file.result", "tool.v1.execute.*.result"),
    ("astrid.v1.admin.agent.list", "astrid.v1.admin.*.*"),
    ("astrid.v1.admin.auth.pair", "astrid.v1.admin.*.*"),
    ("astrid.v1.admin.auth.pair.issue", "astrid.v1.admin.*.*"),
    ("astrid.v1.admin.auth.pair.issue", "astrid.v1.admin.*.*.*"),
    ("x", "*"),
    ("a..b", "a.*.b"),
    ("", ""),
    ("a.b.c", "*.*"),
    ("a.b", "*.*"),
    ("a.b.c.d", "*.*"),
    ("a.b.c", "*.b.*"),
    ("astrid.v1.audit.entry", "astrid.v1.audit.entry"),
    ("astrid.v1.audit.entry", "astrid.v1.audit.*"),
    ("astrid.v1.audit.entry", "astrid.v1.*"),
    ("astrid.v1.audit.entry", "astrid.*"),
]
NOT_RECEIVED = [
    ("a.b.d", "a.b.c"),
    ("a.b", "a.b.c"),
    ("a.b.c.d", "a.b.c"),
    ("a.b", "a.b.*"),
    ("a.c.b", "a.b.*"),
    ("a.b.d", "a.*.c"),
    ("a.b.c.d", "a.*.c"),
    (SEGMENTS_22, "a.*"),
    ("system.log", "astrid.*"),
    ("astrid.v1.request", "astrid.v1.request.*"),
    ("system.v1.request.foo", "astrid.v1.request.*"),
    ("astrid.cli.output", "astrid.*.input"),
    ("astrid.cli.sub.input", "astrid.*.input"),
    ("astrid.v1.admin", "astrid.v1.admin.*"),
    ("astrid.v1.registry.get", "astrid.v1.admin.*"),
    ("tool.v1.execute.a.b.result", "tool.v1.execute.*.result"),
    ("tool.v1.execute.a.b", "tool.v1.execute.*.result"),
    ("astrid.v1.admin.quota", "astrid.v1.admin.*.*"),
    ("astrid.v1.admin.agent.list", "astrid.v1.admin.*.*.*"),
    ("a.b", "*"),
    (SEGMENTS_21, SEGMENTS_21),
    ("astrid.v1.audit.entry", "astrid.v1.request.*"),
    ("astrid.v1.audit.entry", "astrid.v1.session.*"),
    ("astrid.v1.audit.entry", "astrid.v1.audit"),
    ("astrid.v1.audit.entry", "user.prompt"),
]
PUBLISH_ALLOWED = [
    ("tool.v1.execute.*", "tool.v1.execute.x"),
    ("tool.v1.execute.*", "tool.v1.execute.x.result"),
    ("tool.v1.execute.*.result", "tool.v1.execute.read_file.result"),
    ("llm.v1.request.generate.*", "llm.v1.request.generate.openai"),
    ("prompt_builder.v1.hook_response.*", f"prompt_builder.v1.hook_response.{UUID}"),
    ("a.b", "a.b"),
    ("astrid.v1.request.*", "astrid.v1.request.mcp.tools.list"),
    ("registry.v1.*", "registry.v1.selection.callback"),
    ("a.*.*", "a.b.c.d"),
    ("*.v1.x", "q.v1.x"),
    ("a.*", "a.*"),
]
PUBLISH_DENIED = [
    ("a.b", "a.b.c"),
    ("a.b.*", "a.b"),
    ("tool.v1.execute.*.result", "tool.v1.execute.x"),
    ("tool.v1.execute.*.result", "tool.v1.execute.a.b.result"),
    ("agent.v1.response", "agent.v1.stream.delta"),
    ("a.*.c", "a.b.c.d"),
    ("astrid.v1.admin.*.*", "astrid.v1.admin.quota"),
    ("*", "a.b"),
    ("a.b", "A.b"),
]
SUBSCRIBE_ALLOWED = [
    ("a.*", "a.*"),
    ("a.*", "a.b"),
    ("a.*", "a.b.*"),
    ("a.*.*", "a.b.*"),
    ("a.b", "a.b"),
    ("session.v1.response.get_messages.*", f"session.v1.response.get_messages.{UUID}"),
    ("astrid.v1.admin.response.*", "astrid.v1.admin.response.*"),
    ("tool.v1.response.describe.*", "tool.v1.response.describe.*"),
    ("hook_response.*", f"hook_response.{UUID}"),
    ("llm.v1.response.describe", "llm.v1.response.describe"),
]
SUBSCRIBE_DENIED = [
    ("a.b", "a.*"),
    ("a.b.*", "a.*"),
    ("tool.v1.execute.*.result", "tool.v1.execute.*"),
    ("a.b.*", "a.b"),
    ("x", "y"),
]


@pytest.mark.parametrize(("topic", "pattern"), HANDLED)
def test_a_handlers_row_matches_segment_by_segment(topic: str, pattern: str) -> None:
    assert interceptor_matches(topic, pattern) is True


@pytest.mark.parametrize(("topic", "pattern"), NOT_HANDLED)
def test_a_handlers_row_does_not_match_another_count_or_an_empty_segment(topic: str, pattern: str) -> None:
    assert interceptor_matches(topic, pattern) is False


@pytest.mark.parametrize(("topic", "pattern"), RECEIVED)
def test_a_subscription_matches_segments_and_whole_subtrees(topic: str, pattern: str) -> None:
    assert bus_matches(topic, pattern) is True


@pytest.mark.parametrize(("topic", "pattern"), NOT_RECEIVED)
def test_a_subscription_matches_neither_the_prefix_of_its_subtree_nor_deep_topics(topic: str, pattern: str) -> None:
    assert bus_matches(topic, pattern) is False


@pytest.mark.parametrize(("row", "request_"), PUBLISH_ALLOWED + SUBSCRIBE_ALLOWED)
def test_an_access_row_allows_what_it_covers(row: str, request_: str) -> None:
    assert acl_allows([row], request_) is True
    assert acl_allows(["q", row, "z.*"], request_) is True


@pytest.mark.parametrize(("row", "request_"), PUBLISH_DENIED + SUBSCRIBE_DENIED)
def test_an_access_row_allows_nothing_else(row: str, request_: str) -> None:
    assert acl_allows([row], request_) is False


@given(st.text())
def test_without_rows_nothing_is_allowed(topic: str) -> None:
    assert acl_allows([], topic) is False


@pytest.mark.parametrize("name", ["a", "a.b", "a.b.c", "*", "a.*.b"])
def test_segments_are_valid_when_none_is_empty(name: str) -> None:
    assert valid_segments(name) is True
    assert topic_fault(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "a..b", ".a", "a.", ".a.b", "a.b.", "a...b"])
def test_segments_are_invalid_when_one_is_empty(name: str) -> None:
    assert valid_segments(name) is False
    assert "empty segment" in str(topic_fault(name))


@given(st.text(alphabet=".*ab\n\ud800é"))
def test_segments_are_valid_exactly_when_each_has_a_character(name: str) -> None:
    assert valid_segments(name) is all(name.split("."))


def test_a_topic_has_256_bytes_at_most() -> None:
    assert topic_fault("a" * 256) is None
    assert topic_fault("é" * 128) is None
    assert "257 bytes" in str(topic_fault("a" * 257))
    assert "258 bytes" in str(topic_fault("é" * 129))


def test_a_topic_has_8_segments_at_most() -> None:
    assert topic_fault("a.b.c.d.e.f.g.h") is None
    assert "9 segments" in str(topic_fault("a.b.c.d.e.f.g.h.i"))


def test_a_topic_that_utf8_cannot_hold_is_refused() -> None:
    assert "surrogate" in str(topic_fault("a.\ud800"))


def test_checking_a_topic_raises_what_is_wrong_with_it() -> None:
    check_topic("a.b")
    with pytest.raises(ValueError, match="empty segment"):
        check_topic("a..b")
