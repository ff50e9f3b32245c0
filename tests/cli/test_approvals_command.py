"""`astrid-host approvals`: what was allowed for good is listed, added to and revoked; what could never match is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3
from typer.testing import CliRunner, Result

from astrid_host.cli.approvals import app
from astrid_host.gates.allowances import Allowance, covered
from astrid_host.stores import Database, storage_id
from astrid_host.stores.approvals import ApprovalStore, Holder

MakeCapsule = Callable[..., Path]


class Approvals:
    """The command with a state folder, a workspace, and one capsule `shell`."""

    def __init__(self, place: Path, shell: Path) -> None:
        self.state = place / "state"
        self.workspace = place / "work"
        self.workspace.mkdir()
        self.shell = shell
        self.hash = blake3((shell / "guest.wasm").read_bytes()).hexdigest()

    def __call__(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, [*arguments, "--state-dir", str(self.state)])

    def allow(self, *arguments: str) -> Result:
        places = ["--no-bundled", "--capsules", str(self.shell), "--workspace", str(self.workspace)]
        return self("allow", *places, *arguments)

    def rows(self) -> list[dict[str, Any]]:
        done = self("list", "--json")
        assert done.exit_code == 0
        rows: list[dict[str, Any]] = json.loads(done.stdout)
        return rows


@pytest.fixture
def approvals(tmp_path: Path, capsule: MakeCapsule) -> Approvals:
    return Approvals(tmp_path, capsule("shell"))


def test_what_is_allowed_is_listed_with_all_that_it_belongs_to(approvals: Approvals) -> None:
    done = approvals.allow("shell", "git status")
    assert (done.exit_code, done.stdout) == (0, f"1: shell may git status * in the workspace {approvals.workspace}\n")
    assert approvals.allow("shell", "write", "--resource", "cwd://a b", "--principal", "bob").exit_code == 0
    first, second = approvals.rows()
    assert set(first) == {
        "id",
        "principal",
        "workspace",
        "capsule",
        "wasm_hash",
        "action",
        "resource",
        "allowed_at",
    }
    assert (first["principal"], first["action"], first["resource"]) == ("default", "git status", None)
    assert (first["workspace"], first["wasm_hash"]) == (str(approvals.workspace.resolve()), approvals.hash)
    assert (second["principal"], second["action"], second["resource"]) == ("bob", "write", "cwd://a b")


def test_the_table_has_a_line_for_each(approvals: Approvals) -> None:
    approvals.allow("shell", "git status")
    head, row = approvals("list").stdout.splitlines()
    assert head.split() == ["id", "allowed", "capsule", "principal", "workspace", "module", "since"]
    assert row.startswith("1")
    for shown in ("git status *", "shell", "default", str(approvals.workspace), approvals.hash[:12]):
        assert shown in row


def test_a_host_finds_what_was_allowed(approvals: Approvals) -> None:
    approvals.allow("shell", "git status")
    database = Database.open(approvals.state)
    store = ApprovalStore(database)
    holder = Holder("default", str(approvals.workspace.resolve()), storage_id("shell", approvals.shell), approvals.hash)
    kept = [Allowance(*row) for row in store.of(holder)]
    database.close()
    assert covered(kept, "git status", "git status -s")
    assert not covered(kept, "git status", "git status; id")


def test_without_any_the_list_is_empty(approvals: Approvals) -> None:
    assert approvals.rows() == []
    assert approvals("list").exit_code == 0


def test_what_is_allowed_twice_is_one(approvals: Approvals) -> None:
    for _ in range(2):
        assert approvals.allow("shell", "ls").stdout == f"1: shell may ls * in the workspace {approvals.workspace}\n"
    assert len(approvals.rows()) == 1


def test_what_is_revoked_is_gone(approvals: Approvals) -> None:
    for action in ("a", "b", "c"):
        approvals.allow("shell", action)
    done = approvals("revoke", "1", "3", "1")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == "1: shell may no longer a *\n3: shell may no longer c *\n"
    assert [row["id"] for row in approvals.rows()] == [2]


def test_a_number_that_is_none_is_said_and_the_others_are_revoked(approvals: Approvals) -> None:
    approvals.allow("shell", "a")
    done = approvals("revoke", "7", "1", str(1 << 70))
    assert done.exit_code == 1
    assert f"7, {1 << 70}" in done.stderr
    assert "approvals list" in done.stderr
    assert approvals.rows() == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["shell", "ls | sh"], "operator"),
        (["shell", "ls", "--resource", "a & b"], "operator"),
        (["shell", "ls\nid"], "U+000A"),
        (["shell", "ls\udcff"], "U+DCFF"),
        (["shell", "a" * 257], "257"),
        (["shell", "a", "--resource", "a" * 1025], "1025"),
        (["shell", ""], "empty"),
        (["nobody", "ls"], "there are: shell"),
        (["shell", "ls", "--principal", "a b"], "no principal"),
    ],
)
def test_what_could_never_match_is_wrong_usage(approvals: Approvals, arguments: list[str], said: str) -> None:
    done = approvals.allow(*arguments)
    assert done.exit_code == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert approvals.rows() == []


def test_a_workspace_and_a_state_folder_that_are_none_are_said(approvals: Approvals) -> None:
    approvals.workspace.rmdir()
    assert approvals.allow("shell", "ls").exit_code == 2
    approvals.state.write_text("", "utf-8")
    done = approvals("list")
    assert done.exit_code == 3
    assert len(done.stderr.splitlines()) == 1
