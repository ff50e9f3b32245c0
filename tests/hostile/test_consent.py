"""Consent: what a capsule asks for is given only after the operator said so, by path and bytes, never by name."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from guests_in_wat import Guest, capsule, next_of

from astrid_host import BUNDLED, Host, TrustRequest, open_host
from astrid_host.errors import LoadError

SAID = "given.said"
GATEKEEPER, WORDS, ROUTER = Path(BUNDLED) / "gatekeeper", Path(BUNDLED) / "word-tools", Path(BUNDLED) / "router"


def guest(word: str = "1") -> Guest:
    made = Guest()
    return made.handles(made.say(SAID, word))


def given(place: Path, name: str, subscribe: Any = None, publish: Any = (), word: str = "1", **tables: Any) -> Path:
    """A capsule that says a word whenever it is called."""
    return capsule(place, name, guest(word), {"given.ask": "act", **(subscribe or {})}, [SAID, *publish], **tables)


@asynccontextmanager
async def opened(tmp_path: Path, *places: Path, **options: Any) -> AsyncIterator[Host]:
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    async with open_host(places, **{"state_dir": tmp_path / "state", "workspace": work, **options}) as host:
        yield host


def notes(asked: list[TrustRequest], answer: bool) -> Callable[[TrustRequest], bool]:
    """Answers all questions alike, and notes them."""

    def noted(request: TrustRequest) -> bool:
        asked.append(request)
        return answer

    return noted


async def said(host: Host) -> Any:
    async with host.subscribe(SAID) as events:
        host.publish("given.ask", {})
        return (await next_of(events)).payload


PLAIN: dict[str, dict[str, Any]] = {
    "a tool": {
        "subscribe": {"tool.v1.execute.mine": "act", "tool.v1.request.describe": "act"},
        "publish": ["tool.v1.execute.*.result", "tool.v1.response.describe.*"],
    },
    "files of the workspace": {"capabilities": {"fs_read": ["cwd://"], "fs_write": ["cwd://", "/tmp", "*"]}},
    "hosts by name": {"capabilities": {"net": ["api.example.com", "example.org"], "net_connect": ["example.com:443"]}},
    "its own socket": {"capabilities": {"net_bind": ["unix:mine"]}},
    "looking users up": {"capabilities": {"identity": ["resolve"]}},
}


@pytest.mark.parametrize("what", PLAIN)
async def test_a_plain_tool_drops_in_without_a_question(what: str, tmp_path: Path) -> None:
    given(tmp_path / "given", "plain", **PLAIN[what])
    asked: list[TrustRequest] = []
    async with opened(tmp_path, tmp_path / "given", trust=notes(asked, False)) as host:
        assert (host.capsules["plain"].state, host.capsules["plain"].trust) == ("ready", "plain")
        assert await said(host) == 1
    assert asked == []


ASKING: dict[str, tuple[str, dict[str, Any]]] = {
    "the gatekeeper's name": ("replaces", {"name": "gatekeeper"}),
    "a name that a bundled one yields to": ("replaces", {"name": "aos-react"}),
    "a bundled one's interface": ("replaces", {"exports": {"astrid:session": "1.0.0"}}),
    "a bundled one's tool": ("replaces", {"subscribe": {"tool.v1.execute.write_file": "act"}}),
    "a guard": ("guard", {"subscribe": {"other.things": {"handler": "act", "guard": True}}}),
    "calls of all tools": ("intercepts", {"subscribe": {"tool.v1.execute.*": "act"}}),
    "results of another's tool": ("intercepts", {"subscribe": {"tool.v1.execute.read_file.result": "act"}}),
    "prompts": ("intercepts", {"subscribe": {"user.v1.prompt": "act"}}),
    "anything of three segments": ("intercepts", {"subscribe": {"*.*.*": "act"}}),
    "failed calls of others": ("intercepts", {"subscribe": {"astrid.v1.dispatch.failed.tool.v1.execute.*": "act"}}),
    "hearing what a person types": ("listens", {"subscribe": {"astrid.v1.elicit.response.*": {}}}),
    "hearing everything": ("listens", {"subscribe": {"*.*": {}}}),
    "hearing all reports": ("listens", {"subscribe": {"astrid.v1.dispatch.*": {}}}),
    "answers to approvals": ("role", {"publish": ["astrid.v1.approval.response.*"]}),
    "saying everything": ("role", {"publish": ["*.*"]}),
    "programs": ("host_process", {"capabilities": {"host_process": ["git"]}}),
    "programs that stay": ("allow_persistent", {"capabilities": {"allow_persistent": True}}),
    "the whole network": ("net", {"capabilities": {"net": ["api.example.com", "*"]}}),
    "a whole top-level domain": ("net", {"capabilities": {"net": ["com"]}}),
    "a public suffix": ("net", {"capabilities": {"net": ["CO.UK."]}}),
    "connections to a whole domain": ("net_connect", {"capabilities": {"net_connect": ["com:*"]}}),
    "homes": ("fs_write", {"capabilities": {"fs_write": ["cwd://", "home://notes"]}}),
    "a bridge": ("uplink", {"capabilities": {"uplink": True}}),
    "a port": ("net_bind", {"capabilities": {"net_bind": ["0.0.0.0:8080"]}}),
    "other users' links": ("identity", {"capabilities": {"identity": ["resolve", "link"]}}),
    "all users": ("identity", {"capabilities": {"identity": ["admin"]}}),
    "prompts of the model": ("allow_prompt_injection", {"capabilities": {"allow_prompt_injection": True}}),
    "programs, by its component": (
        "host_process",
        {"component": [{"id": "x", "file": "asks.wasm", "capabilities": {"host_process": ["bash"]}}]},
    ),
}


@pytest.mark.parametrize("what", ASKING)
async def test_more_than_a_plain_tool_needs_consent_and_changes_nothing_before(what: str, tmp_path: Path) -> None:
    kind, tables = ASKING[what]
    tables = dict(tables)
    name = tables.pop("name", "asks")
    folder = given(tmp_path / "given", name, **tables)
    async with opened(tmp_path, BUNDLED, tmp_path / "given") as host:
        assert [info.folder for info in host.refused] == [folder]
        refused = host.refused[0]
        assert kind in {ask.kind for ask in refused.asks if ask.needed}
        assert refused.trust == "refused"
        assert f"astrid-host trust {folder} --state-dir {tmp_path / 'state'}" in str(refused.error)
        assert f"{folder / 'Capsule.toml'}:" in str(refused.error)
        assert not refused.handlers
        assert not refused.roles
        assert not refused.source_id  # its module was not even looked at
        bundled = [info for info in host.capsules.values() if info.trust == "bundled"]
        assert len(bundled) == len(list(Path(BUNDLED).glob("*/Capsule.toml")))
        assert {info.state for info in bundled} == {"ready"}


async def test_strict_raises_for_one_that_is_not_trusted(tmp_path: Path) -> None:
    given(tmp_path / "given", "asks", capabilities={"host_process": ["git"]})
    with pytest.raises(LoadError, match="astrid-host trust"):
        async with opened(tmp_path, tmp_path / "given", strict=True):
            pass


@pytest.mark.parametrize(
    "name", ["Gatekeeper", "GATEKEEPER", "gatekeeper ", "gаtekeeper", "gate­supervisor", "ｇatekeeper"]
)
async def test_a_name_that_only_looks_like_a_bundled_one_is_no_name(name: str, tmp_path: Path) -> None:
    folder = given(tmp_path / "given", "looks")
    text = (folder / "Capsule.toml").read_text().replace('name = "looks"', f'name = "{name}"')
    (folder / "Capsule.toml").write_text(text)
    async with opened(tmp_path, BUNDLED, tmp_path / "given", trust=True) as host:
        assert host.capsules["gatekeeper"].trust == "bundled"
        assert host.capsules["gatekeeper"].state == "ready"
        assert host.capsules[name].state == "failed"


ASKS: dict[str, Any] = {"capabilities": {"host_process": ["git"]}}


async def test_the_one_who_is_asked_sees_what_is_asked_for_and_is_asked_once(tmp_path: Path) -> None:
    folder = given(tmp_path / "given", "asks", **ASKS)
    asked: list[TrustRequest] = []

    async def policy(request: TrustRequest) -> bool:
        asked.append(request)
        return True

    for _ in range(2):
        async with opened(tmp_path, tmp_path / "given", trust=policy) as host:
            assert host.capsules["asks"].trust == "trusted"
            assert await said(host) == 1
    assert [(request.name, request.folder, request.previous) for request in asked] == [("asks", folder, None)]
    assert [(ask.kind, ask.row) for ask in asked[0].asks] == [("host_process", '[capabilities] host_process = ["git"]')]
    line = (folder / "Capsule.toml").read_text().splitlines().index("host_process = [") + 1
    assert asked[0].asks[0].place == f"{folder / 'Capsule.toml'}:{line}"


async def test_a_no_is_a_no_and_is_asked_again(tmp_path: Path) -> None:
    given(tmp_path / "given", "asks", **ASKS)
    asked: list[TrustRequest] = []
    for _ in range(2):
        async with opened(tmp_path, tmp_path / "given", trust=notes(asked, False)) as host:
            assert host.capsules["asks"].state == "failed"
    assert len(asked) == 2


async def trust_once(tmp_path: Path) -> None:
    async with opened(tmp_path, tmp_path / "given", trust=lambda _: True) as host:
        assert host.capsules["asks"].state == "ready"


def _swap(folder: Path) -> None:
    (folder / "asks.wasm").write_bytes(guest("2").wasm())


def _meta(folder: Path) -> None:
    (folder / "meta.json").write_text("{}")


def _more(folder: Path) -> None:
    path = folder / "Capsule.toml"
    path.write_text(path.read_text().replace('"git"', '"git", "bash"'))


def _comment(folder: Path) -> None:
    path = folder / "Capsule.toml"
    path.write_text(f"# another\n{path.read_text()}")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_swap, "the same powers, another module"),
        (_more, "asks for more"),
        (_meta, "manifest"),
        (_comment, "another manifest"),
    ],
)
async def test_whatever_changes_in_a_trusted_folder_asks_again(
    change: Callable[[Path], None], told: str, tmp_path: Path
) -> None:
    folder = given(tmp_path / "given", "asks", **ASKS)
    await trust_once(tmp_path)
    change(folder)
    async with opened(tmp_path, tmp_path / "given") as host:
        assert host.capsules["asks"].state == "failed"
        assert told in str(host.capsules["asks"].error)
    asked: list[TrustRequest] = []
    async with opened(tmp_path, tmp_path / "given", trust=notes(asked, True)) as host:
        assert host.capsules["asks"].state == "ready"
    assert asked[0].previous is not None
    assert bool(asked[0].added) is (change is _more)


async def test_a_folder_that_changes_between_question_and_load_gains_nothing(tmp_path: Path) -> None:
    folder = given(tmp_path / "given", "asks", **ASKS)

    def swaps(_: TrustRequest) -> bool:
        _swap(folder)
        _more(folder)
        return True

    async with opened(tmp_path, tmp_path / "given", trust=swaps) as host:
        assert await said(host) == 1
        assert host._registry.capsules["asks"].manifest.capabilities.host_process == ("git",)
    async with opened(tmp_path, tmp_path / "given") as host:
        assert host.capsules["asks"].state == "failed"


async def test_a_record_is_for_one_folder_not_for_a_name_or_for_equal_bytes(tmp_path: Path) -> None:
    folder = given(tmp_path / "given", "asks", **ASKS)
    await trust_once(tmp_path)
    shutil.copytree(folder, tmp_path / "elsewhere" / "asks")
    async with opened(tmp_path, tmp_path / "elsewhere") as host:
        assert host.capsules["asks"].state == "failed"


async def test_a_link_is_trusted_for_where_it_leads(tmp_path: Path) -> None:
    folder = given(tmp_path / "given", "asks", **ASKS)
    other = given(tmp_path / "other", "asks", word="2", **ASKS)
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "asks"
    link.symlink_to(folder)
    async with opened(tmp_path, tmp_path / "links", trust=[folder]) as host:
        assert await said(host) == 1
    link.unlink()
    link.symlink_to(other)
    async with opened(tmp_path, tmp_path / "links", trust=[folder]) as host:
        assert host.capsules["asks"].state == "failed"


@pytest.mark.parametrize("depth", [0, 1])
async def test_folders_that_are_named_are_trusted(depth: int, tmp_path: Path) -> None:
    folder = given(tmp_path / "given", "asks", **ASKS)
    given(tmp_path / "more", "stranger", **ASKS)
    async with opened(tmp_path, tmp_path / "given", tmp_path / "more", trust=[[folder, folder.parent][depth]]) as host:
        assert host.capsules["asks"].trust == "trusted"
        assert host.capsules["stranger"].state == "failed"


async def test_a_host_in_memory_records_nothing(tmp_path: Path) -> None:
    given(tmp_path / "given", "asks", **ASKS)
    async with opened(tmp_path, tmp_path / "given", state_dir=":memory:", trust=lambda _: True) as host:
        assert host.capsules["asks"].state == "ready"
    async with opened(tmp_path, tmp_path / "given", state_dir=":memory:") as host:
        assert host.capsules["asks"].state == "failed"


async def test_an_untrusted_namesake_does_not_stand_in_the_way_of_a_trusted_one(tmp_path: Path) -> None:
    given(tmp_path / "first", "asks", word="1", **ASKS)
    second = given(tmp_path / "second", "asks", word="2", **ASKS)
    async with opened(tmp_path, tmp_path / "first", tmp_path / "second", trust=[second]) as host:
        assert await said(host) == 2
        assert [info.folder for info in host.refused] == [tmp_path / "first" / "asks"]


async def test_a_capsule_that_gives_itself_rights_goes_on_without_them(tmp_path: Path) -> None:
    folder = given(tmp_path / "given", "asks")
    async with opened(tmp_path, tmp_path / "given") as host:
        path = folder / "Capsule.toml"
        path.write_text(f'{path.read_text()}\n[capabilities]\nhost_process = ["bash"]\n')
        with pytest.raises(LoadError, match="astrid-host trust"):
            await host.reload("asks")
        assert host._registry.capsules["asks"].manifest.capabilities.host_process == ()
        assert await said(host) == 1


async def test_a_bundled_folder_by_path_and_an_exact_copy_are_as_trusted_as_the_original(tmp_path: Path) -> None:
    shutil.copytree(GATEKEEPER, tmp_path / "given" / "anything")
    async with opened(tmp_path, ROUTER, tmp_path / "given") as host:
        assert (host.capsules["router"].trust, host.capsules["router"].roles) == ("bundled", ["router"])
        assert (host.capsules["gatekeeper"].state, host.capsules["gatekeeper"].trust) == ("ready", "trusted")
        assert host.capsules["gatekeeper"].roles == ["failures"]
    manifest = tmp_path / "given" / "anything" / "Capsule.toml"
    manifest.write_text(f"{manifest.read_text()}\n# changed\n")
    async with opened(tmp_path, ROUTER, tmp_path / "given") as host:
        assert host.capsules["gatekeeper"].state == "failed"


async def test_a_path_below_a_bundled_name_is_not_bundled_for_that(tmp_path: Path) -> None:
    """A folder that is called like the bundled ones, and a link inside of a capsule, prove nothing."""
    folder = given(tmp_path / "capsules", "router")
    async with opened(tmp_path, ROUTER, folder) as host:
        assert host.capsules["router"].folder == ROUTER.resolve()
        assert [info.folder for info in host.refused] == [folder]
