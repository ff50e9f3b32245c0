"""The capsules of Astrid's community distribution, by their rows: trusted, every word counts, and what they ask for is named.

The rows are those of its manifests. What a capsule says in the course of the conventions is listed beside them; each must be
believed, once the operator trusts the capsule, and needs no role that its rows do not ask for.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from astrid_host.bundled import contracts_files
from astrid_host.gates import Contracts, Rules
from astrid_host.manifest import Manifest, Package, PublishRow, SubscribeRow

CONTRACTS = Contracts.read(contracts_files())
RESULTS, DESCRIBED, DESCRIBE = "tool.v1.execute.*.result", "tool.v1.response.describe.*", "tool.v1.request.describe"
TOOL = [RESULTS, DESCRIBED]


def rows(publish: Sequence[str], handled: Sequence[str] = (), heard: Sequence[str] = ()) -> Manifest:
    return Manifest(
        Package("x", "1.0.0"),
        publish={row: PublishRow(row) for row in publish},
        subscribe=(*(SubscribeRow(row, handler="act") for row in handled), *map(SubscribeRow, heard)),
    )


def tool(*names: str) -> Manifest:
    return rows(TOOL, [DESCRIBE, *(f"tool.v1.execute.{name}" for name in names)])


# By capsule: its rows, the roles that it asks for, and what it says.
DISTRIBUTION: dict[str, tuple[Manifest, set[str], list[str]]] = {
    "aos-router": (
        rows(["tool.v1.execute.*", "tool.v1.execute.result"], ["tool.v1.request.execute", RESULTS]),
        {"router"},
        ["tool.v1.execute.read_file", "tool.v1.execute.result"],
    ),
    "aos-fs": (tool("read_file"), set(), ["tool.v1.execute.read_file.result", "tool.v1.response.describe.self"]),
    "aos-shell": (tool("run_shell_command"), set(), ["tool.v1.execute.run_shell_command.result"]),
    "aos-agents": (
        rows(["prompt_builder.v1.hook_response.*"], ["prompt_builder.v1.hook.before_build"]),
        set(),
        ["prompt_builder.v1.hook_response.1f2e"],
    ),
    "aos-meta-harness": (
        rows(["hook.v1.response.message_received.*"], ["hook.v1.event.message_received"]),
        set(),
        ["hook.v1.response.message_received.c1"],
    ),
    "aos-identity": (
        rows(
            ["spark.v1.response.ready", "agent.v1.response", *TOOL],
            ["spark.v1.request.build", "cli.v1.command.execute", "tool.v1.execute.save_identity", DESCRIBE],
        ),
        {"agent"},
        ["spark.v1.response.ready", "agent.v1.response", "tool.v1.execute.save_identity.result"],
    ),
    "aos-session": (
        rows(
            [
                "session.v1.response.get_messages.*",
                "session.v1.response.clear.*",
                "session.v1.event.*",
                "agent.v1.response",
                *TOOL,
            ],
            [
                "session.v1.append",
                "session.v1.request.get_messages",
                "session.v1.request.clear",
                "cli.v1.command.execute",
                "tool.v1.execute.list_threads",
                DESCRIBE,
            ],
        ),
        {"agent"},
        [
            "session.v1.response.get_messages.c1",
            "session.v1.response.clear.c1",
            "session.v1.event.created",
            "agent.v1.response",
        ],
    ),
    "aos-prompt-builder": (
        rows(
            [
                "prompt_builder.v1.response.*",
                "prompt_builder.v1.hook.before_build",
                "prompt_builder.v1.hook.after_build",
                "session.v1.request.get_messages",
                DESCRIBE,
            ],
            ["prompt_builder.v1.assemble", "astrid.v1.capsules_loaded"],
            ["prompt_builder.v1.hook_response.*", "session.v1.response.get_messages.*", DESCRIBED],
        ),
        {"agent"},
        [
            "prompt_builder.v1.response.assemble",
            "prompt_builder.v1.hook.before_build",
            "session.v1.request.get_messages",
            DESCRIBE,
        ],
    ),
    "aos-context-engine": (
        rows(
            [
                "context_engine.v1.response.compact",
                "context_engine.v1.response.estimate_tokens",
                "context_engine.v1.hook.before_compaction",
                "context_engine.v1.hook.after_compaction",
            ],
            heard=[
                "context_engine.v1.compact",
                "context_engine.v1.estimate_tokens",
                "context_engine.v1.hook_response.*",
            ],
        ),
        set(),
        ["context_engine.v1.response.compact", "context_engine.v1.hook.before_compaction"],
    ),
    "aos-react": (
        rows(
            [
                "spark.v1.request.build",
                "spark.v1.response.ready",
                "prompt_builder.v1.assemble",
                "prompt_builder.v1.response.assemble",
                "agent.v1.response",
                "agent.v1.stream.delta",
                "agent.v1.session_changed",
                "tool.v1.request.execute",
                "tool.v1.request.cancel",
                "llm.v1.request.generate.*",
                "context_engine.v1.compact",
                "session.v1.request.get_messages",
                "session.v1.request.clear",
                "registry.v1.get_active_model",
            ],
            ["user.v1.prompt", "spark.v1.response.ready", "prompt_builder.v1.response.assemble", "llm.v1.stream.*"],
        ),
        {"agent"},
        [
            "spark.v1.request.build",
            "spark.v1.response.ready",
            "prompt_builder.v1.assemble",
            "prompt_builder.v1.response.assemble",
            "agent.v1.response",
            "agent.v1.stream.delta",
            "tool.v1.request.execute",
            "tool.v1.request.cancel",
            "llm.v1.request.generate.openai-compat",
            "context_engine.v1.compact",
            "session.v1.request.clear",
            "registry.v1.get_active_model",
        ],
    ),
    "aos-openai-compat": (
        rows(
            ["llm.v1.stream.openai-compat", "llm.v1.response.describe", "llm.v1.response.describe.*"],
            ["llm.v1.request.describe", "llm.v1.request.generate.openai-compat"],
        ),
        set(),
        ["llm.v1.stream.openai-compat", "llm.v1.response.describe"],
    ),
    "aos-registry": (
        rows(
            [
                "registry.v1.response.*",
                "registry.v1.active_model_changed",
                "registry.v1.selection.*",
                "llm.v1.request.describe",
                "cli.v1.command.result.*",
            ],
            heard=["registry.v1.*", "cli.v1.command.execute", "llm.v1.response.describe", "astrid.v1.capsules_loaded"],
        ),
        {"models"},
        [
            "registry.v1.response.get_active_model",
            "registry.v1.active_model_changed",
            "registry.v1.selection.required",
            "llm.v1.request.describe",
            "cli.v1.command.result.r1",
        ],
    ),
    "aos-hook-bridge": (
        rows(
            ["hook.v1.event.*", "oracle.v1.hook.response.*"],
            ["oracle.v1.hook.validated.claude", "astrid.v1.lifecycle.session_created"],
            ["hook.v1.response.message_received.*"],
        ),
        set(),
        ["hook.v1.event.message_received", "oracle.v1.hook.response.claude"],
    ),
    "aos-mcp": (
        rows(
            [
                "oracle.v1.hook.validated.*",
                "astrid.v1.tools.list",
                "astrid.v1.audit.*",
                "hook.v1.response.before_tool_call.*",
                "astrid.v1.response.*",
                "astrid.v1.approval.response.*",
                DESCRIBE,
                "tool.v1.execute.*",
                "tool.v1.execute.*.*",
            ],
            [
                "astrid.v1.request.mcp.tool.call",
                DESCRIBED,
                "astrid.v1.capsules_loaded",
                "hook.v1.event.before_tool_call",
            ],
            ["astrid.v1.approval", RESULTS],
        ),
        {"router", "person", "host"},
        [
            "astrid.v1.response.r1",
            "astrid.v1.approval.response.r1",
            "astrid.v1.audit.entry",
            "astrid.v1.tools.list",
            "tool.v1.execute.read_file",
            "hook.v1.response.before_tool_call.c1",
        ],
    ),
    "aos-cli": (
        rows(
            [
                "user.v1.prompt",
                "cli.v1.command.execute",
                "cli.v1.command.run.*",
                "astrid.v1.request.*",
                "astrid.v1.admin.*.*",
                "astrid.v1.elicit.response.*",
                "astrid.v1.approval.response.*",
                "registry.v1.get_providers",
                "registry.v1.set_active_model",
                "registry.v1.selection.*",
                "session.v1.request.*",
            ],
            heard=["agent.v1.response", "astrid.v1.approval", "astrid.v1.response.*"],
        ),
        {"person"},
        [
            "user.v1.prompt",
            "cli.v1.command.execute",
            "cli.v1.command.run.aos-registry",
            "astrid.v1.request.r1",
            "astrid.v1.approval.response.r1",
            "astrid.v1.elicit.response.r1",
            "registry.v1.set_active_model",
            "registry.v1.selection.callback",
            "session.v1.request.list",
        ],
    ),
}


class Trusted:
    """A capsule that the operator trusts, as contracts see it."""

    def __init__(self, name: str, manifest: Manifest) -> None:
        self.id = name
        self.roles = frozenset(CONTRACTS.wanted(manifest))
        self.owned = frozenset(row.pattern for row in manifest.subscribe if "*" not in row.pattern)


@pytest.mark.parametrize("name", DISTRIBUTION)
def test_a_capsule_of_the_distribution_asks_for_the_roles_that_it_needs(name: str) -> None:
    manifest, roles, _ = DISTRIBUTION[name]
    wanted = CONTRACTS.wanted(manifest)
    assert set(wanted) == roles
    assert CONTRACTS.unheard(manifest, wanted) == {}


@pytest.mark.parametrize("name", DISTRIBUTION)
def test_what_a_trusted_capsule_of_the_distribution_says_is_believed(name: str) -> None:
    manifest, _, says = DISTRIBUTION[name]
    rules, speaker = Rules(CONTRACTS), Trusted(name, manifest)
    doubted = {topic: rule.doubts(speaker) for topic in says if (rule := rules[topic]) is not None}
    assert {topic: why for topic, why in doubted.items() if why} == {}
