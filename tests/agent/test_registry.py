"""The built registry capsule in a real host: which models there are and which one answers, for each principal, with topics and
payloads as Astrid's own clients know them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from guests_in_wat import Guest, capsule, spin

from astrid_host import BUNDLED, Host, open_host

ANSWERS = "registry.v1.response."
CHANGED = "registry.v1.active_model_changed"
REQUEST_ID = "0123456789abcdef0123456789abcdef"


def entry(provider: str, model: str, **more: Any) -> dict[str, Any]:
    """A model as its provider tells of it."""
    return {
        "id": model,
        "description": f"{model} of {provider}",
        "request_topic": f"llm.v1.request.generate.{provider}",
        "stream_topic": f"llm.v1.stream.{provider}",
        "capabilities": ["text", "tools"],
        "context_window": 1000,
        "max_output_tokens": 100,
        **more,
    }


def known(provider: str, model: str) -> dict[str, Any]:
    """The same as the registry tells of it."""
    return entry(provider, model) | {"id": f"{provider}:{model}"}


def a_provider(place: Path, name: str, *models: str, then: str = "") -> None:
    """A capsule that tells of models when it is asked."""
    guest = Guest()
    told = json.dumps({"providers": [entry(name, model) for model in models]})
    guest.handles(guest.say("llm.v1.response.describe", told) + then)
    capsule(place, name, guest, {"llm.v1.request.describe": "describe"}, ["llm.v1.response.describe"])


def a_hanging_provider(place: Path, limit_s: float) -> None:
    """A capsule that never answers."""
    rows = {"llm.v1.request.describe": "describe"}
    capsule(place, "hanging", Guest().handles(spin()), rows, limits={"timeout_secs": limit_s})


@asynccontextmanager
async def registry(place: Path, state_dir: str | Path = ":memory:", **settings: Any) -> AsyncIterator[Host]:
    config = {"registry": settings}
    capsules = [BUNDLED / "registry", place]
    async with open_host(
        capsules, trust=True, state_dir=state_dir, workspace=place, config=config, strict=True
    ) as host:
        yield host


async def ask(host: Host, what: str, payload: Any = None, principal: str = "default") -> Any:
    """Ask the registry; its answer."""
    with trio.fail_after(5):
        async with host.subscribe(ANSWERS + what, principal=principal) as answers:
            host.publish(f"registry.v1.{what}", {} if payload is None else payload, principal=principal)
            return (await anext(aiter(answers))).payload


async def active(host: Host, principal: str = "default") -> str | None:
    model = await ask(host, "get_active_model", principal=principal)
    return None if model is None else str(model["id"])


async def run(host: Host, *arguments: str) -> Any:
    """`models` on the command line."""
    async with host.subscribe(f"cli.v1.command.result.{REQUEST_ID}") as results:
        request = {"req_id": REQUEST_ID, "command": "models", "args": list(arguments)}
        host.publish("cli.v1.command.run.registry", request)
        return (await anext(aiter(results))).payload


async def test_the_first_model_answers_until_one_is_set(tmp_path: Path) -> None:
    a_provider(tmp_path, "one", "m:1", "n")
    async with registry(tmp_path) as host:
        assert await ask(host, "get_active_model") == known("one", "m:1")
        assert await ask(host, "get_providers") == [known("one", "m:1"), known("one", "n")]


async def test_a_principal_for_whom_nothing_was_loaded_is_served_like_any_other(tmp_path: Path) -> None:
    a_provider(tmp_path, "one", "m", "n")
    async with registry(tmp_path) as host:
        await ask(host, "set_active_model", {"model_id": "n"}, principal="alice")
        assert await active(host, "alice") == "one:n"
        assert await active(host, "bob") == "one:m"


async def test_a_model_that_was_set_answers(tmp_path: Path) -> None:
    a_provider(tmp_path, "one", "m")
    a_provider(tmp_path, "two", "m", "n")
    async with registry(tmp_path) as host:
        assert await ask(host, "get_active_model") == known("one", "m")
        answer = await ask(host, "set_active_model", {"model_id": "two:m", "corr_id": "c"})
        assert answer == {"status": "ok", "active_model": known("two", "m"), "corr_id": "c"}
        assert await active(host) == "two:m"


async def test_a_name_alone_will_do_when_it_is_one_providers(tmp_path: Path) -> None:
    a_provider(tmp_path, "one", "m")
    a_provider(tmp_path, "two", "m", "n")
    async with registry(tmp_path) as host:
        assert (await ask(host, "set_active_model", {"data": {"model_id": "n"}}))["active_model"]["id"] == "two:n"
        answer = await ask(host, "set_active_model", {"model_id": "m"})
        assert answer["error"].startswith("ambiguous model; candidates: ")
        assert await ask(host, "set_active_model", {"model_id": "x"}) == {"error": "unknown model: x"}
        assert await ask(host, "set_active_model", {"corr_id": "c"}) == {"error": "missing model_id", "corr_id": "c"}
        assert await active(host) == "two:n"


@pytest.mark.parametrize("default", ["two:n", "n", "two:unlisted"])
async def test_a_configured_model_answers_without_a_choice(tmp_path: Path, default: str) -> None:
    a_provider(tmp_path, "one", "m")
    a_provider(tmp_path, "two", "m", "n")
    async with registry(tmp_path, default_model=default) as host:
        model = await ask(host, "get_active_model")
    assert model["id"] == (default if ":" in default else "two:n")
    assert model["request_topic"] == "llm.v1.request.generate.two"


async def test_a_change_is_told_and_a_cleared_model_is_null(tmp_path: Path) -> None:
    a_provider(tmp_path, "one", "m", "n")
    async with registry(tmp_path) as host, host.subscribe(CHANGED, principal="alice") as changes:
        told = aiter(changes)
        await active(host, "alice")
        assert (await anext(told)).payload == known("one", "m")
        await ask(host, "set_active_model", {"model_id": "n"}, principal="alice")
        assert (await anext(told)).payload == known("one", "n")
        assert await ask(host, "clear_active_model", principal="alice") == {"status": "ok", "active_model": None}
        assert (await anext(told)).payload is None
        assert await active(host, "alice") is None


async def test_without_any_provider_the_answer_is_null_at_once(tmp_path: Path) -> None:
    async with registry(tmp_path) as host:
        begun = trio.current_time()
        assert await ask(host, "get_active_model") is None
        assert trio.current_time() - begun < 1
        assert await ask(host, "get_providers") == []


async def test_why_there_is_no_model_is_told_before_the_answer(tmp_path: Path) -> None:
    guest = Guest()
    guest.handles(guest.say("llm.v1.response.describe", json.dumps({"providers": [], "problem": "It is off."})))
    capsule(tmp_path, "one", guest, {"llm.v1.request.describe": "describe"}, ["llm.v1.response.describe"])
    async with registry(tmp_path) as host, host.subscribe(f"{ANSWERS}*", principal="alice") as answers:
        for _ in range(2):
            host.publish("registry.v1.get_active_model", {}, principal="alice")
            told = [await anext(aiter(answers)) for _ in range(2)]
            assert [event.topic for event in told] == [f"{ANSWERS}problem", f"{ANSWERS}get_active_model"]
            assert [event.payload for event in told] == [{"problem": "It is off."}, None]
        host.publish("registry.v1.clear_active_model", {}, principal="alice")
        host.publish("registry.v1.get_active_model", {}, principal="alice")
        told = [await anext(aiter(answers)) for _ in range(2)]
        assert [event.topic for event in told] == [f"{ANSWERS}clear_active_model", f"{ANSWERS}get_active_model"]


async def test_a_provider_that_hangs_costs_the_window_and_no_more(tmp_path: Path) -> None:
    a_provider(tmp_path, "one", "m")
    a_hanging_provider(tmp_path, 30)
    async with registry(tmp_path, describe_window_ms=100) as host:
        begun = trio.current_time()
        assert await active(host) == "one:m"
        assert trio.current_time() - begun < 2


async def test_a_provider_that_fails_is_not_waited_for(tmp_path: Path) -> None:
    a_provider(tmp_path, "one", "m", then="unreachable")
    async with registry(tmp_path, describe_window_ms=20_000) as host:
        assert await active(host) == "one:m"


async def test_a_choice_outlives_the_host_and_what_nobody_chose_follows_what_there_is(tmp_path: Path) -> None:
    state = tmp_path / "state"
    before, after = tmp_path / "before", tmp_path / "after"
    a_provider(before, "one", "m", "n")
    a_provider(after, "one", "new", "n")
    async with registry(before, state) as host:
        await ask(host, "set_active_model", {"model_id": "n"}, principal="alice")
        assert (await active(host, "alice"), await active(host, "bob")) == ("one:n", "one:m")
    async with registry(after, state) as host:
        assert (await active(host, "alice"), await active(host, "bob")) == ("one:n", "one:new")


async def test_models_on_the_command_line(tmp_path: Path) -> None:
    a_provider(tmp_path, "one", "m", "n")
    async with registry(tmp_path) as host:
        assert await run(host, "list") == {"exit_code": 0, "output": "* one:m  m of one\n  one:n  n of one"}
        assert await run(host, "set", "n") == {"exit_code": 0, "output": "active model set to one:n"}
        assert await run(host, "current") == {"exit_code": 0, "output": "one:n"}
        assert await run(host, "set", "x") == {"exit_code": 1, "error": "unknown model: x"}
        assert await run(host, "unset") == {"exit_code": 0, "output": "active model cleared"}
        assert await run(host, "current") == {"exit_code": 0, "output": "none"}
        assert (await run(host))["exit_code"] == 1


async def test_models_are_offered_to_pick_from(tmp_path: Path) -> None:
    a_provider(tmp_path, "one", "m", "n")
    async with registry(tmp_path) as host:
        async with host.subscribe("registry.v1.response.*") as answers:
            told = aiter(answers)
            host.publish("cli.v1.command.execute", {"type": "user_input", "text": "/models"})
            offer = (await anext(told)).payload
            assert offer["type"] == "selection_required"
            assert [option["id"] for option in offer["options"]] == ["one:m", "one:n"]
            host.publish(offer["callback_topic"], {"request_id": offer["request_id"], "selected_id": "one:n"})
            assert (await anext(told)).payload["active_model"]["id"] == "one:n"
            host.publish("cli.v1.command.execute", {"type": "user_input", "text": "/models m"})
            assert (await anext(told)).payload["active_model"]["id"] == "one:m"
        assert await active(host) == "one:m"


def ids(models: Sequence[Any]) -> list[str]:
    return [model["id"] for model in models]


async def test_a_provider_that_names_no_topic_of_its_own_is_left_out(tmp_path: Path) -> None:
    guest = Guest()
    bad = entry("one", "x", request_topic="llm.v1.request.generate.*")
    told = json.dumps({"providers": [bad, {"id": "y"}, entry("one", "m")]})
    guest.handles(guest.say("llm.v1.response.describe", told))
    capsule(tmp_path, "one", guest, {"llm.v1.request.describe": "describe"}, ["llm.v1.response.describe"])
    async with registry(tmp_path) as host:
        assert ids(await ask(host, "get_providers")) == ["one:m"]
