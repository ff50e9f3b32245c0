"""What is written reads back; and no text, however broken, makes reading fail in another way than by its problems."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astrid_host.manifest import (
    Capabilities,
    Command,
    Component,
    ContextFile,
    EnvField,
    Export,
    Import,
    Limits,
    Manifest,
    McpServer,
    OptionsFrom,
    Package,
    PublishRow,
    SubscribeRow,
    ToolRow,
    Uplink,
    check_text,
    dump,
    load,
    write,
)
from astrid_host.manifest.versions import Version, parse_requirement

VECTORS = sorted((Path(__file__).parent / "vectors").glob("*.toml"))
NOT_COMPARED = ("path", "source")


def said(manifest: Manifest | None) -> dict[str, Any]:
    """All that a manifest says, but not where."""
    assert manifest is not None
    return {name: getattr(manifest, name) for name in manifest.__struct_fields__ if name not in NOT_COMPARED}


@pytest.mark.parametrize("vector", VECTORS, ids=lambda path: path.stem)
def test_a_real_manifest_reads_back_as_it_was(vector: Path) -> None:
    text = vector.read_text()
    manifest, _ = check_text(text, vector)
    assert manifest is not None
    again, _ = check_text(dump(manifest), vector)
    assert said(again) == said(manifest)
    assert dump(manifest) == dump(again) if again else False


def test_rows_are_written_a_line_each(tmp_path: Path) -> None:
    manifest = Manifest(
        Package("x", "1.0.0"),
        publish={"a.b": PublishRow("a.b")},
        subscribe=(SubscribeRow("c.*", handler="on_c", priority=5),),
    )
    path = tmp_path / "Capsule.toml"
    write(manifest, path)
    assert path.read_text() == (
        '[package]\nname = "x"\nversion = "1.0.0"\n\n[publish]\n"a.b" = { wit = "opaque" }\n\n'
        '[subscribe]\n"c.*" = { handler = "on_c", priority = 5 }\n'
    )
    assert load(path).handlers[0].handler == "on_c"


text = st.text(alphabet=st.characters(codec="utf-8"), max_size=12)
some = st.none() | text
lists = st.lists(text, max_size=3).map(tuple)
name = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)
segment = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="."), min_size=1, max_size=6)
topic = st.lists(segment, min_size=1, max_size=8).map(".".join)
version = st.builds(Version, st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
requirement = st.sampled_from(["^1", "*", ">=0.1, <2", "1.2.*", "~0.3"]).map(parse_requirement)
plain = st.recursive(
    st.integers(-(1 << 63), (1 << 63) - 1) | st.booleans() | text | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=5,
)
pin = st.none() | st.tuples(st.sampled_from(["version", "tag", "rev", "branch", "path"]), text)
publish = st.builds(PublishRow, topic, text, pin, st.none() | plain, st.booleans())
allowing = st.builds(SubscribeRow, topic, text, pin=pin)
handling = st.builds(
    SubscribeRow, topic, text, text.filter(bool), st.integers(0, (1 << 32) - 1), st.sampled_from(["fail", "continue"]),
    guard=st.booleans(), excepted=st.just(()) | st.just(("a.b",)), pin=pin, fanout=st.none() | plain,
)  # fmt: skip


@st.composite
def env_fields(draw: st.DrawFn) -> EnvField:
    has_default = draw(st.booleans())
    options = st.builds(OptionsFrom, text, some, some, lists)
    return EnvField(
        draw(text), draw(some), draw(some), draw(plain) if has_default else None, has_default, draw(lists), draw(some),
        draw(st.none() | options),
    )  # fmt: skip


def by(key: str, rows: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(rows, max_size=3, unique_by=lambda row: getattr(row, key)).map(tuple)


manifests = st.builds(
    Manifest,
    st.builds(
        Package,
        name,
        version.map(str),
        some,
        lists,
        some,
        some,
        some,
        some,
        some,
        some,
        lists,
        lists,
        st.none() | st.just("^0.10"),
        lists,
    ),
    components=st.lists(st.builds(Component, text, text, some, text, lists), max_size=2).map(tuple),
    imports=st.lists(
        st.builds(Import, name, name, requirement, st.booleans()),
        max_size=3,
        unique_by=lambda i: (i.namespace, i.interface),
    ).map(tuple),
    exports=st.lists(
        st.builds(Export, name, name, version), max_size=3, unique_by=lambda e: (e.namespace, e.interface)
    ).map(tuple),
    publish=by("pattern", publish).map(lambda rows: {row.pattern: row for row in rows}),
    subscribe=by("pattern", allowing | handling),
    tools=by("name", st.builds(ToolRow, text, some, some, st.booleans())),
    capabilities=st.builds(
        Capabilities,
        st.just(False),
        lists,
        lists,
        lists,
        lists,
        lists,
        st.booleans(),
        lists,
        lists,
        st.none() | st.integers(0, 9),
        lists,
        st.booleans(),
    ),
    env=st.dictionaries(text, env_fields(), max_size=3),
    commands=by("name", st.builds(Command, text, some, some)),
    context_files=by("name", st.builds(ContextFile, some, some)),
    mcp_servers=by("id", st.builds(McpServer, some, some, some, some, lists)),
    uplinks=by("name", st.builds(Uplink, some, some, some)),
    skills=st.lists(st.dictionaries(text, plain, min_size=1, max_size=3), max_size=2).map(tuple),
    limits=st.builds(
        Limits,
        st.integers(1 << 16, 1 << 32),
        st.floats(0.001, 86_400),
        st.integers(1, 1024),
        st.sampled_from(["quarantine", "reload"]),
    ),
)


@settings(max_examples=60, deadline=None)
@given(manifests)
def test_any_manifest_reads_back_as_it_was(manifest: Manifest) -> None:
    again, problems = check_text(dump(manifest), Path("/nowhere/Capsule.toml"))
    about_files = ("file", "hash", "only the first")
    assert [
        str(p) for p in problems if p.severity == "error" and not any(word in p.message for word in about_files)
    ] == []
    assert said(again) == said(manifest)


cuts = st.tuples(st.integers(0, 3000), st.integers(0, 40), st.text(alphabet="[]{}=\"'\\.,#\n\0 a1*\u00e4", max_size=6))


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(VECTORS), st.lists(cuts, min_size=1, max_size=4))
def test_a_broken_manifest_is_reported_and_raises_nothing(vector: Path, changes: list[tuple[int, int, str]]) -> None:
    broken = vector.read_text()
    for at, length, instead in changes:
        at %= len(broken) + 1
        broken = broken[:at] + instead + broken[at + length :]
    manifest, problems = check_text(broken, vector)
    assert manifest is not None or any(problem.severity == "error" for problem in problems)
    for problem in problems:
        assert 1 <= problem.line <= broken.count("\n") + 1
        assert problem.column >= 1
        assert str(problem)


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(
            ["package", "component", "imports", "exports", "publish", "subscribe", "tool", "capabilities", "env"]
        )
        | st.sampled_from(
            ["command", "mcp_server", "uplink", "skill", "limits", "interceptor", "topic", "context_file", "a.b"]
        ),
        st.recursive(
            text | st.integers(-5, 5) | st.booleans() | st.floats(),
            lambda inner: (
                st.lists(inner, max_size=2)
                | st.dictionaries(
                    st.sampled_from(
                        [
                            "name",
                            "version",
                            "file",
                            "hash",
                            "capabilities",
                            "ipc_publish",
                            "wit",
                            "handler",
                            "tag",
                            "a.b",
                            "event",
                        ]
                    )
                    | st.sampled_from(
                        [
                            "reply",
                            "priority",
                            "options_from",
                            "default",
                            "type",
                            "astrid",
                            "a:b",
                            "net",
                            "args",
                            "command",
                        ]
                    ),
                    inner,
                    max_size=3,
                )
            ),
            max_leaves=8,
        ),
    )
)
def test_values_of_any_type_anywhere_are_reported_and_raise_nothing(document: dict[str, Any]) -> None:
    import tomli_w

    manifest, problems = check_text(tomli_w.dumps(document), Path("/nowhere/Capsule.toml"))
    assert manifest is not None or any(problem.severity == "error" for problem in problems)
