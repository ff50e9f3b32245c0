"""What a capsule needs in its manifest to take part in the tool convention, checked before it runs.

Each finding names the file, the line and the TOML to write. Nothing here is enforced by the kernel: it only says why a tool
would not be found, not answer, or not be usable by a model.
"""

from __future__ import annotations

import re
from pathlib import Path

from astrid_host.gates import Contracts, quoted
from astrid_host.manifest import Manifest, Problem
from astrid_host.tools import DESCRIBE, DESCRIBED, EXECUTE, tool_of
from astrid_host.topics import acl_allows

# Model providers accept 64 characters, and clients put a server's name before a tool's.
NAME_MOST, NAME_ADVISED = 64, 50
_NAME = re.compile(r"[\w:-]+")


def check_convention(manifest: Manifest) -> list[Problem]:
    """Everything that keeps the capsule's tools from being described, called or answered."""
    bound = {name: row for row in manifest.handlers if (name := tool_of(row.pattern)) is not None}
    problems = []
    for tool in manifest.tools:
        if tool.name not in bound:
            wanted = f'"{EXECUTE}{tool.name}" = {{ wit = "opaque", handler = "tool_execute_{tool.name}" }}'
            problems.append(
                _problem(
                    manifest,
                    "error",
                    f"the tool {tool.name!r} is declared, but no [subscribe] row brings its calls to a handler",
                    manifest.line_of("tool", tool.name),
                    f"[subscribe]\n{wanted}",
                )
            )
    for name, row in bound.items():
        problems += _name_problems(manifest, name, row.line)
        result = f"{EXECUTE}{name}.result"
        if not acl_allows(manifest.publish_rows, result):
            problems.append(
                _problem(
                    manifest,
                    "error",
                    f"the tool {name!r} may not publish its result on {result}, so nobody would get its answer",
                    row.line,
                    f'[publish]\n"{EXECUTE}*.result" = {{ wit = "opaque" }}',
                )
            )
    if bound:
        problems += _describe_problems(manifest)
    return problems


def check_contracts(manifest: Manifest, contracts: Contracts, *, bundled: bool) -> list[Problem]:
    """The rows of `[publish]` that reach topics on which the capsule's word does not count, unless the operator grants it.

    Args:
        manifest: the capsule's.
        contracts: of the conventions.
        bundled: it comes with the host, and has the roles that it has there.
    """
    roles = contracts.roles_of(manifest.package.name) if bundled else frozenset()
    return [
        _problem(
            manifest,
            "warning",
            f"the row {quoted(row)} does not count everywhere: {why}",
            manifest.publish[row].line,
            "remove the row, or let the operator grant it: astrid-host trust, with the capsule's folder",
        )
        for row, why in contracts.unheard(manifest, roles).items()
    ]


def _name_problems(manifest: Manifest, name: str, line: int) -> list[Problem]:
    if not _NAME.fullmatch(name):
        text = f"{name!r} is no tool name: the router accepts letters, digits, '-', '_' and ':'"
        return [_problem(manifest, "error", text, line, "rename the tool")]
    if len(name) > NAME_MOST:
        text = f"the tool name {name!r} has {len(name)} characters; model providers refuse more than {NAME_MOST}"
        return [_problem(manifest, "error", text, line, "shorten the name")]
    if len(name) > NAME_ADVISED:
        text = (
            f"the tool name {name!r} has {len(name)} characters; with a server's name before it some clients refuse it"
        )
        return [_problem(manifest, "warning", text, line, f"keep names within {NAME_ADVISED} characters")]
    return []


def _describe_problems(manifest: Manifest) -> list[Problem]:
    rows = [row for row in manifest.handlers if row.pattern == DESCRIBE]
    if not rows:
        text = "its tools are not described to models: no [subscribe] row on " + DESCRIBE
        mend = f'[subscribe]\n"{DESCRIBE}" = {{ wit = "opaque", handler = "tool_describe" }}'
        return [_problem(manifest, "warning", text, 1, mend)]
    answer = f"{DESCRIBED}self"
    if acl_allows(manifest.publish_rows, answer) or any(row.reply for row in rows):
        return []
    text = f"its tools are not described to models: it may not publish on {answer}"
    return [_problem(manifest, "error", text, rows[0].line, f'[publish]\n"{DESCRIBED}*" = {{ wit = "opaque" }}')]


def _problem(manifest: Manifest, severity: str, text: str, line: int, mend: str) -> Problem:
    where = manifest.path or Path("Capsule.toml")
    return Problem("error" if severity == "error" else "warning", text, where, line, 1, mend)
