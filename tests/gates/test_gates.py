"""Gates: what a manifest allows, what the guest hears, and the line that would allow it."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astrid_host.gates import (
    PublishGate,
    SubscribeGate,
    covers,
    holds,
    may_publish,
    may_read,
    may_subscribe,
    may_write,
    quoted,
)
from astrid_host.manifest import Capabilities, Manifest, Package, PublishRow, SubscribeRow


def manifest(publish: Sequence[str] = (), subscribe: Sequence[str] = (), **claims: Any) -> Manifest:
    return Manifest(
        Package("x", "1.0.0"),
        publish={topic: PublishRow(topic) for topic in publish},
        subscribe=tuple(SubscribeRow(pattern) for pattern in subscribe),
        capabilities=Capabilities(**claims),
    )


PUBLISH_ALLOWED = [
    ("tool.v1.execute.*", "tool.v1.execute.x"),
    ("tool.v1.execute.*", "tool.v1.execute.x.result"),
    ("tool.v1.execute.*.result", "tool.v1.execute.read_file.result"),
    ("prompt_builder.v1.hook_response.*", "prompt_builder.v1.hook_response.3f2a-77"),
    ("a.b", "a.b"),
    ("astrid.v1.request.*", "astrid.v1.request.mcp.tools.list"),
    ("a.*.*", "a.b.c.d"),
    ("*.v1.x", "q.v1.x"),
    ("a.*", "a.*"),
    ("x", "x"),
]
PUBLISH_DENIED = [
    ("a.b", "a.b.c"),
    ("a.b.*", "a.b"),
    ("tool.v1.execute.*.result", "tool.v1.execute.x"),
    ("tool.v1.execute.*.result", "tool.v1.execute.a.b.result"),
    ("a.*.c", "a.b.c.d"),
    ("*", "a.b"),
    ("a.b", "A.b"),
]


@pytest.mark.parametrize(("row", "topic"), PUBLISH_ALLOWED)
def test_a_row_allows_what_it_covers(row: str, topic: str) -> None:
    assert may_publish(manifest([row]), topic) is None
    assert may_publish(manifest(["zzz", row]), topic) is None


@pytest.mark.parametrize(("row", "topic"), PUBLISH_DENIED)
def test_a_row_does_not_allow_what_it_does_not_cover(row: str, topic: str) -> None:
    denial = may_publish(manifest([row]), topic)
    assert denial is not None
    assert denial.case == "capability-denied"


def test_without_rows_nothing_may_be_published() -> None:
    denial = may_publish(manifest(), "a.b")
    assert denial is not None
    assert denial.case == "capability-denied"


def test_a_denial_names_the_line_to_add() -> None:
    denial = may_publish(manifest(), "a.b")
    assert denial is not None
    row = '"a.b" = { wit = "opaque" }'
    assert denial.detail == f"capsule 'x' may not publish 'a.b': add to its Capsule.toml: [publish] {row}"
    denial = may_subscribe(manifest(), "a.*")
    assert denial is not None
    row = '"a.*" = { wit = "opaque" }'
    assert denial.detail == f"capsule 'x' may not subscribe to 'a.*': add to its Capsule.toml: [subscribe] {row}"


@pytest.mark.parametrize(
    ("topic", "says"),
    [
        ("a" * 257, "256 are allowed"),
        ("ü" * 129, "256 are allowed"),
        (".".join("a" * 200), "256 are allowed"),
        ("a..b", "empty segment"),
        ("", "empty segment"),
        (".a", "empty segment"),
        ("a.", "empty segment"),
        (".".join(["a"] * 9) + ".", "empty segment"),  # before the count of segments
        (".".join(["a"] * 9), "9 segments"),
    ],
)
def test_the_form_of_a_topic_comes_before_rights(topic: str, says: str) -> None:
    """Whether or not a row covers it, a malformed topic is invalid input."""
    for rows in ([], [topic], ["a.*"]):
        for answer in (may_publish(manifest(rows), topic), may_subscribe(manifest(subscribe=rows), topic)):
            assert answer is not None
            assert answer.case == "invalid-input"
            assert says in answer.detail
            assert len(answer.detail) < 600


@pytest.mark.parametrize("topic", ["a.b.c.d.e.f.g.h", "a" * 256, "ü" * 128, "a." + "b" * 254])
def test_a_topic_at_the_limits_is_fine(topic: str) -> None:
    assert may_publish(manifest([topic]), topic) is None
    assert may_subscribe(manifest(subscribe=[topic]), topic) is None


@pytest.mark.parametrize(
    ("row", "pattern"),
    [
        ("a.*", "a.*"),
        ("a.*", "a.b"),
        ("a.*", "a.b.*"),
        ("a.*.*", "a.b.*"),
        ("a.b", "a.b"),
        ("session.v1.response.get_messages.*", "session.v1.response.get_messages.c1"),
        ("*", "*"),
    ],
)
def test_a_subscription_that_a_row_covers_is_allowed(row: str, pattern: str) -> None:
    assert may_subscribe(manifest(subscribe=[row]), pattern) is None


@pytest.mark.parametrize(
    ("row", "pattern"),
    [("a.b", "a.*"), ("a.b.*", "a.*"), ("tool.v1.execute.*.result", "tool.v1.execute.*"), ("a.b.*", "a.b"), ("x", "y")],
)
def test_a_subscription_that_no_row_covers_is_denied(row: str, pattern: str) -> None:
    denial = may_subscribe(manifest(publish=[pattern], subscribe=[row]), pattern)
    assert denial is not None
    assert denial.case == "capability-denied"


@pytest.mark.parametrize("pattern", ["a.*.b", "*.a", "a.*.*", "astrid.v1.admin.response.*.*", "*.a.b.c.d.e.f.g"])
def test_a_wildcard_before_the_last_segment_is_never_subscribed(pattern: str) -> None:
    """Even if the manifest has that very row."""
    denial = may_subscribe(manifest(subscribe=[pattern]), pattern)
    assert denial is not None
    assert denial.case == "invalid-input"
    assert "before its last segment" in denial.detail


def test_a_gate_remembers_and_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    true_answer = may_publish

    def count(of: Any, topic: str) -> Any:
        asked.append(topic)
        return true_answer(of, topic)

    monkeypatch.setattr("astrid_host.gates.topics.may_publish", count)
    gate = PublishGate(manifest(["a.*"]))
    for _ in range(3):
        assert gate.check("a.b") is None
        denial = gate.check("b")
        assert denial is not None
        assert denial.case == "capability-denied"
    assert asked == ["a.b", "b"]


def test_a_guest_that_makes_up_topics_does_not_fill_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("astrid_host.gates.verdicts.KEPT_VERDICTS", 8)
    publish, subscribe = PublishGate(manifest(["a.*"])), SubscribeGate(manifest(subscribe=["a.*"]))
    for i in range(100):
        assert publish.check(f"a.{i}") is None
        assert subscribe.check(f"a.{i}") is None
        assert publish.check("b" * (300 + i)) is not None
    assert len(publish._known) <= 8
    assert len(subscribe._known) <= 8
    assert all(len(topic) <= 256 for topic in publish._known)


@pytest.mark.parametrize(
    ("row", "path", "allowed"),
    [
        ("*", "cwd://", True),
        ("*", "cwd://a/b", True),
        ("*", "home://", False),
        ("*", "/tmp/x", False),
        ("cwd://", "cwd://", True),
        ("cwd://", "cwd://a", True),
        ("cwd://", "home://a", False),
        ("cwd://src", "cwd://src", True),
        ("cwd://src/", "cwd://src/a", True),
        ("cwd://src", "cwd://src/a/b", True),
        ("cwd://src", "cwd://srcs", False),
        ("cwd://src", "cwd://", False),
        ("cwd://src", "home://src", False),
        ("cwd://src/a", "cwd://src", False),
        ("home://", "home://.config/x", True),
        ("home://.config", "home://.config", True),
        ("home://.config", "home://.ssh", False),
        ("/tmp", "/tmp", True),
        ("/tmp", "/tmp/a/b", True),
        ("/tmp/a", "/tmp/a/b", True),
        ("/tmp/a", "/tmp/ab", False),
        ("/tmp", "cwd://tmp", False),
        ("/", "/tmp/a", False),
        ("", "cwd://a", False),
        ("src", "cwd://src", False),
        ("/etc", "cwd://etc", False),
        ("cwd://a/../b", "cwd://a/../b", False),
        ("cwd://..", "cwd://..", False),
        ("cwd://", "cwd://../x", False),
        ("CWD://", "cwd://a", False),
        ("**", "cwd://a", False),
    ],
)
def test_a_row_of_paths_covers_its_place_and_what_is_below(row: str, path: str, allowed: bool) -> None:
    assert covers([row], path) is allowed
    assert (may_read(manifest(fs_read=(row,)), path) is None) is allowed
    assert (may_write(manifest(fs_write=(row,)), path) is None) is allowed
    assert may_write(manifest(fs_read=(row,)), path) is not None
    assert may_read(manifest(fs_write=(row,)), path) is not None


@pytest.mark.parametrize("path", ["cwd://a", "home://.config/x", "/tmp/a/b", "cwd://"])
def test_the_line_that_a_denied_path_names_allows_it(path: str) -> None:
    denial = may_read(manifest(fs_read=("cwd://src",)), path)
    assert denial is not None
    assert denial.case == "capability-denied"
    table, _, line = denial.detail.rpartition("Capsule.toml: ")[2].partition("] ")
    assert table == "[capabilities"
    rows = tomllib.loads(line)["fs_read"]
    assert "cwd://src" in rows
    assert covers(rows, path)


def test_capabilities_are_the_fields_that_claim_something() -> None:
    claims = manifest(net=("a.b",), uplink=True, fs_read=("*",), bind_workers=4, kv=(), allow_persistent=False)
    assert claims.capabilities.names() == ["fs_read", "net", "uplink"]
    for name in ("fs_read", "net", "uplink"):
        assert holds(claims, name)
        assert not holds(manifest(), name)
    for name in ("bind_workers", "kv", "allow_persistent", "", "fs-read", "__class__", "net.x"):
        assert not holds(claims, name)


@given(st.text(max_size=20))
def test_what_is_quoted_is_one_line_that_toml_reads_back(text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    line = quoted(text)
    assert "\n" not in line
    assert "\r" not in line
    assert tomllib.loads(f"{line} = {line}") == {text: text}
