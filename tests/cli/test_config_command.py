"""`astrid-host config`: sets what capsules get from `get-config`; secrets are asked for without echo and never printed."""

from __future__ import annotations

import json
import os
import pty
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest
from typer.testing import CliRunner

import astrid_host
from astrid_host.cli import logs
from astrid_host.cli.config import app
from astrid_host.stores import Stores, storage_id

CHECKOUT = Path(astrid_host.__file__).parent.parent


class Said(NamedTuple):
    stdout: str
    stderr: str
    returncode: int


Command: TypeAlias = Callable[..., Said]
ROWS = """
[env]
base_url = { default = "https://default" }
model = { type = "select", enum_values = ["small", "large"] }
retries = { type = "integer", default = 3 }
api_key = { type = "secret", request = "The key of your account" }
"""
COMMAND = [sys.executable, "-m", "astrid_host.cli", "config"]


@pytest.fixture
def environment(surroundings: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """No keyring of whoever runs the tests is written to."""
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    return {**surroundings, "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}


@pytest.fixture
def places(capsule: Callable[..., Path], tmp_path: Path) -> list[str]:
    """Options that lead to a capsule `model-client`, and to a state folder of the test's own."""
    return ["--capsules", str(capsule("model-client", ROWS).parent), "--state-dir", str(tmp_path / "state")]


@pytest.fixture
def astrid_config(environment: dict[str, str], places: list[str]) -> Command:
    """`astrid-host config` as a process of its own."""

    def astrid_config(*arguments: str, stdin: str = "") -> Said:
        here = places[2:] if arguments[0] == "unset" else places
        done = subprocess.run(
            [*COMMAND, *arguments, *here],
            cwd=CHECKOUT,
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        return Said(done.stdout, done.stderr, done.returncode)

    return astrid_config


@pytest.fixture
def config(environment: dict[str, str], places: list[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """The same in this process, which is faster."""
    monkeypatch.setattr(logs, "set_up", lambda *_: None)

    def config(*arguments: str, stdin: str = "") -> Said:
        here = places[2:] if arguments[0] == "unset" else places
        done = CliRunner().invoke(app, [*arguments, *here], input=stdin, prog_name="astrid-host config")
        return Said(done.stdout, done.stderr, done.exit_code)

    return config


def listed(config: Command) -> list[tuple[Any, ...]]:
    done = config("list", "model-client", "--json")
    assert (done.stderr, done.returncode) == ("", 0)
    return [(row["key"], row["principal"], row["value"], row["origin"]) for row in json.loads(done.stdout)]


def test_what_is_set_is_got_until_it_is_unset(astrid_config: Command, places: list[str]) -> None:
    done = astrid_config("set", "model-client.base_url", "http://here")
    said = f"model-client.base_url is set for everybody, for the capsule in {places[1]}/model-client\n"
    assert (done.stdout, done.stderr, done.returncode) == (said, "", 0)
    assert astrid_config("get", "model-client.base_url").stdout == "http://here\n"
    done = astrid_config("unset", "model-client.base_url")
    assert (done.stdout, done.returncode) == ("model-client.base_url is no longer set for everybody\n", 0)
    assert astrid_config("get", "model-client.base_url").stdout == "https://default\n"
    done = astrid_config("unset", "model-client.base_url")
    assert (done.stderr, done.returncode) == ("astrid-host: model-client.base_url was not set for everybody\n", 1)


def test_a_value_may_be_for_one_principal(config: Command, places: list[str]) -> None:
    config("set", "model-client.base_url", "of all")
    done = config("set", "model-client.base_url", "of alice", "--principal", "alice")
    whose = f"the principal alice, for the capsule in {places[1]}/model-client"
    assert done.stdout == f"model-client.base_url is set for {whose}\n"
    got = {who: config("get", "model-client.base_url", "--principal", who).stdout for who in ("alice", "bob", "")}
    assert got == {"alice": "of alice\n", "bob": "of all\n", "": "of all\n"}


def test_the_list_has_what_is_declared_and_what_is_set(config: Command) -> None:
    config("set", "model-client.model", "large", "--principal", "alice")
    config("set", "model-client.api_key", stdin="s3cret\n")
    config("set", "model-client.undeclared", "7")
    assert listed(config) == [
        ("api_key", "", None, "set"),
        ("base_url", "", "https://default", "default"),
        ("model", "", None, "unset"),
        ("model", "alice", "large", "set"),
        ("retries", "", "3", "default"),
        ("undeclared", "", "7", "set"),
    ]
    table = config("list").stdout
    assert "model-client.api_key" in table
    assert "(secret)" in table
    assert "s3cret" not in table


def test_a_key_that_is_not_declared_is_set_with_a_warning(config: Command) -> None:
    done = config("set", "model-client.timeout", "5")
    assert done.returncode == 0
    assert "does not declare timeout; it declares base_url, model, retries, api_key" in done.stderr
    assert config("get", "model-client.timeout").stdout == "5\n"


def test_a_secret_from_stdin_is_kept_where_only_this_user_reads(astrid_config: Command, tmp_path: Path) -> None:
    done = astrid_config("set", "model-client.api_key", stdin="s3cret-value\n")
    assert (done.stderr, done.returncode) == ("", 0)
    folder = tmp_path / "given" / "model-client"
    said = f"set for everybody, for the capsule in {folder}; it is kept in a file that only this user can read\n"
    assert done.stdout == f"model-client.api_key is {said}"
    assert astrid_config("get", "model-client.api_key").stdout == "(secret)\n"
    state = tmp_path / "state"
    assert stat.S_IMODE((state / "secrets.json").stat().st_mode) == 0o600
    assert b"s3cret-value" not in (state / "astrid.sqlite3").read_bytes()
    with closing(Stores(state)) as stores:
        assert stores.secrets.get("", storage_id("model-client", folder), "api_key") == "s3cret-value"
    assert astrid_config("unset", "model-client.api_key").returncode == 0
    assert astrid_config("get", "model-client.api_key").returncode == 1


def test_a_secret_typed_at_a_terminal_is_not_echoed(
    environment: dict[str, str], places: list[str], tmp_path: Path
) -> None:
    here, there = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "set", "model-client.api_key", *places],
        cwd=CHECKOUT,
        env=environment,
        stdin=there,
        stdout=there,
        stderr=there,
        start_new_session=True,
        # getpass asks the terminal that controls the process, not whatever stdin is.
        preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)),
    )
    os.close(there)
    shown = read_until(here, b": ")
    assert shown.endswith(b"model-client.api_key (The key of your account): ")
    os.write(here, b"s3cret-value\n")
    shown += read_until(here, b"can read")
    assert process.wait(30) == 0
    os.close(here)
    assert b"s3cret-value" not in shown
    with closing(Stores(tmp_path / "state")) as stores:
        owner = storage_id("model-client", tmp_path / "given" / "model-client")
        assert stores.secrets.get("", owner, "api_key") == "s3cret-value"


def read_until(terminal: int, end: bytes) -> bytes:
    shown = b""
    while end not in shown:
        shown += os.read(terminal, 4096)
    return shown


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["set", "model-client.api_key", "s3cret"], 2, "is a secret: leave VALUE out"),
        (["set", "model-client.api_key"], 2, "a secret has at least one character"),
        (["set", "model-client.base_url"], 2, "is no secret: give its VALUE"),
        (["set", "model-client.model", "huge"], 2, "is one of small, large; given 'huge'"),
        (["set", "model-client.retries", "many"], 2, "is an integer; given 'many'"),
        (["set", "model-client.ASTRID_SOCKET_PATH", "/tmp/s"], 2, "is the host's to say"),
        (["set", "model-client.base_url", "\udcff"], 2, "the value is not UTF-8"),
        (["set", "model-client.base_url", "x", "--principal", "a/b"], 2, "'a/b' is no principal"),
        (["set", "model-client", "x"], 2, "names no value: expected CAPSULE.KEY"),
        (["get", "model-client.model"], 1, "model-client.model is not set"),
        (["get", "model-client.api_key"], 1, "model-client.api_key is not set"),
        (
            ["set", "model-client.base_url", "a", "b c"],
            2,
            "2 values are given for model-client.base_url, which has one",
        ),
        (["set", "model-client.base_url", "a", "b c"], 2, "put it in quotes, such as 'a b c'"),
        (["get", "model-client.base_url", "--principal", "a/b"], 2, "'a/b' is no principal"),
        (["unset", "model-client.base_url", "--principal", "a/b"], 2, "'a/b' is no principal"),
        (["set", "modl-client.base_url", "x"], 2, "there is no capsule named 'modl-client' here, but"),
        (["get", "modl-client.base_url"], 2, "there is no capsule named 'modl-client' here, but"),
        (["list", "modl-client"], 2, "there is no capsule named 'modl-client' here, but"),
    ],
)
def test_what_cannot_be_done_is_told(config: Command, arguments: list[str], code: int, said: str) -> None:
    done = config(*arguments)
    assert (done.stdout, done.returncode) == ("", code)
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
