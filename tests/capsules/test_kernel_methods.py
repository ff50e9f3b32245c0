"""The kernel answers requests on `astrid.v1.request.<x>` on `astrid.v1.response.<x>`; others' traffic there is not its own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from guests_in_wat import FAILED, Guest, capsule, good, hosted, next_of

from astrid_host import BUNDLED, Host, __version__, open_host

REQUEST, RESPONSE = "astrid.v1.request.", "astrid.v1.response."


async def ask(host: Host, method: str, *, principal: str | None = None, **params: Any) -> dict[str, Any]:
    async with host.subscribe(RESPONSE + "x") as answers:
        request = {"type": "raw_json", "method": method, "params": params}
        host.publish(REQUEST + "x", request, principal=principal)
        event = await next_of(answers)
    assert event.principal == (principal or "default")
    answer: dict[str, Any] = event.payload
    return answer


async def test_the_status_tells_what_runs(tmp_path: Path) -> None:
    good(tmp_path)
    async with hosted(tmp_path) as host:
        answer = await ask(host, "GetStatus", principal="alice")
        assert answer["status"] == "Status"
        data = answer["data"]
        assert (data["pid"], data["version"], data["loaded_capsules"]) == (os.getpid(), __version__, ["good"])
        assert (data["connected_clients"], data["connections_by_principal"]) == (0, [])
        assert await ask(host, "ListCapsules") == {"status": "Success", "data": ["good"]}


async def test_the_metadata_names_each_capsules_tools_in_load_order_with_what_its_manifest_says(tmp_path: Path) -> None:
    tool = {"name": "t", "mutable": True, "asks_approval": True}
    rows = {"tool.v1.execute.t": "act", "tool.v1.execute.u": "act", "tool.v1.request.describe": "act"}
    for name in ("a", "b"):
        capsule(tmp_path, name, Guest().handles(""), rows, tool=[tool])
    async with open_host([Path(BUNDLED) / "word-tools", tmp_path], trust=True, state_dir=":memory:") as host:
        data = (await ask(host, "GetCapsuleMetadata"))["data"]
        assert [entry["name"] for entry in data] == list(host.capsules)
        by_name = {entry["name"]: entry for entry in data}
        assert by_name["a"]["tools"] == [
            {"name": "t", "mutable": True, "asks_approval": True},
            {"name": "u", "mutable": False, "asks_approval": False},
        ]
        assert by_name["b"]["tools"] == [], "its rows are inactive: the first in load order keeps a tool"
        assert by_name["b"]["interceptor_events"] == ["tool.v1.request.describe"]
        assert {entry["source_id"] for entry in data} == {info.source_id for info in host.capsules.values()}


async def test_a_tool_that_no_row_names_is_told_of_who_declares_it(tmp_path: Path) -> None:
    """One behind a pattern, and a run loop's: whoever asks whether it changes something has to know."""
    tool = {"name": "t", "mutable": True}
    capsule(tmp_path, "a", Guest().handles(""), {"tool.v1.execute.*": "act"}, tool=[tool])
    capsule(tmp_path, "b", Guest().handles(""), {"tool.v1.execute.u": "act"}, tool=[{"name": "u"}, {"name": "t"}])
    capsule(tmp_path, "c", Guest().handles(""), {"c.ask": "act"}, tool=[{"name": "u", "mutable": True}])
    async with hosted(tmp_path) as host:
        told = {entry["name"]: entry["tools"] for entry in (await ask(host, "GetCapsuleMetadata"))["data"]}
        assert told["a"] == [{"name": "t", "mutable": True, "asks_approval": False}]
        assert [tool["name"] for tool in told["b"]] == ["u", "t"]
        assert told["c"] == [], "a tool that is bound is its binder's"


async def test_readiness_says_what_is_missing_for_a_conversation(tmp_path: Path) -> None:
    good(tmp_path)
    imports = {"astrid": {"session": "^1.0"}}
    capsule(tmp_path, "agent", Guest().handles(""), {"user.v1.prompt": "act"}, ["agent.v1.response"], imports=imports)
    async with hosted(tmp_path) as host:
        data = (await ask(host, "GetAgentReadiness"))["data"]
        assert (data["prompt_subscribers"], data["response_publishers"]) == (["agent"], ["agent"])
        assert (data["ready"], data["unsatisfied_required_imports"]) == (False, ["agent: astrid:session ^1.0"])


async def test_commands_are_listed_with_who_provides_them(tmp_path: Path) -> None:
    command = {"name": "models", "description": "Lists models.", "kind": "cli"}
    capsule(tmp_path, "x", Guest().handles(""), {"x.ask": "act"}, command=[command])
    async with hosted(tmp_path) as host:
        assert (await ask(host, "GetCommands"))["data"] == [
            {"name": "models", "description": "Lists models.", "provider_capsule": "x", "kind": "cli"}
        ]


async def test_the_owner_may_reload_and_unload_and_hears_what_went_wrong(tmp_path: Path) -> None:
    folder = good(tmp_path)
    async with hosted(tmp_path) as host:
        assert await ask(host, "ReloadCapsule", id="good") == {"status": "Success", "data": {"id": "good"}}
        (folder / "good.wasm").write_bytes(b"")
        answer = await ask(host, "ReloadCapsule", id="good")
        assert answer["status"] == "Error"
        assert "good" in answer["data"]
        assert "no capsule 'nope'" in (await ask(host, "UnloadCapsule", id="nope"))["data"]
        assert "must be a text" in (await ask(host, "UnloadCapsule"))["data"]
        assert (await ask(host, "UnloadCapsule", id="good"))["status"] == "Success"
        assert (await ask(host, "ListCapsules"))["data"] == []


@pytest.mark.parametrize("method", ["ReloadCapsule", "UnloadCapsule", "Shutdown"])
async def test_nobody_else_may_change_the_host(method: str, tmp_path: Path) -> None:
    good(tmp_path)
    guest = Guest()
    guest.handles(guest.say(REQUEST + "x", f'{{"type":"raw_json","method":"{method}","params":{{"id":"good"}}}}'))
    capsule(tmp_path, "x", guest, {"x.ask": "act"}, [REQUEST + "*"])
    async with hosted(tmp_path) as host, host.subscribe(RESPONSE + "x") as answers:
        answer = await ask(host, method, principal="alice", id="good")
        assert answer["status"] == "Error"
        assert "only the host's owner" in answer["data"]
        await next_of(answers)
        host.publish("x.ask", {})
        assert (await next_of(answers)).payload["status"] == "Error", "a capsule that is no uplink"
        assert host.capsules["good"].state == "ready"


async def test_a_host_inside_another_program_is_not_shut_down_from_the_bus(tmp_path: Path) -> None:
    good(tmp_path)
    async with hosted(tmp_path) as host:
        assert "stops it" in (await ask(host, "Shutdown"))["data"]


async def test_an_unknown_method_is_answered_with_those_that_there_are(tmp_path: Path) -> None:
    good(tmp_path)
    async with hosted(tmp_path) as host:
        answer = await ask(host, "MakeCoffee")
        assert answer["status"] == "Error"
        assert "GetStatus" in answer["data"]


@pytest.mark.parametrize(
    "payload", [{"method": "GetStatus"}, {"type": "raw_json"}, {"type": "raw_json", "method": 1}, {}, []]
)
async def test_what_is_no_kernel_request_is_left_to_capsules(payload: Any, tmp_path: Path) -> None:
    good(tmp_path)
    async with hosted(tmp_path) as host, host.subscribe(FAILED + REQUEST + "x") as failed:
        host.publish(REQUEST + "x", payload)
        assert (await next_of(failed)).payload["reason"] == "no-handler"


async def test_what_went_wrong_is_told_although_a_folders_name_is_no_utf_8(tmp_path: Path) -> None:
    good(tmp_path)
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/odd\xff"))
    shutil.move(tmp_path / "good", odd)
    async with hosted(tmp_path) as host:
        (odd / "Capsule.toml").write_bytes(b"")
        answer = await ask(host, "ReloadCapsule", id="good")
        assert answer["status"] == "Error"
        assert "odd\\udcff" in answer["data"]
        assert (await ask(host, "ListCapsules"))["data"] == ["good"]


@pytest.mark.parametrize("error", [RuntimeError("it broke"), OSError("it broke"), ValueError("it broke \ud800")])
async def test_a_fault_while_the_host_is_changed_is_answered_and_ends_nothing(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(*_: Any) -> None:
        raise error

    monkeypatch.setattr("astrid_host.capsules.Reloader.reload", fails)
    good(tmp_path)
    async with hosted(tmp_path) as host:
        answer = await ask(host, "ReloadCapsule", id="good")
        assert answer["status"] == "Error"
        assert "it broke" in answer["data"]
        assert (await ask(host, "ListCapsules"))["data"] == ["good"]
    assert "a fault of the host" in caplog.text


async def test_an_answer_that_cannot_be_told_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("astrid_host.kernel_methods._metadata_of", lambda *_: "\ud800")
    good(tmp_path)
    async with hosted(tmp_path) as host:
        answer = await ask(host, "GetCapsuleMetadata")
        assert answer["status"] == "Error"
        assert "cannot be told" in answer["data"]
