"""The capsule session, as its built module answers in a host: conversations are kept, found and handed out."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import trio
from messages import assistant, called, result, user

from astrid_host import BUNDLED, Host, open_host
from astrid_host.stores import KvStore, Stores

ROUTER, SESSION = Path(BUNDLED) / "router", Path(BUNDLED) / "session"
WAIT_S = 20
KEPT = "default:capsule:session"


def call(call_id: str) -> dict[str, Any]:
    return called((call_id, "read_file", {"b": 1, "a": [2]}))


class Client:
    """Asks the session of a host, as one principal."""

    def __init__(self, host: Host, principal: str = "default") -> None:
        self.host = host
        self.principal = principal
        self._numbers = count()

    async def ask(self, what: str, **fields: Any) -> Any:
        """What a request is answered with, without its correlation id."""
        correlation_id = f"{self.principal}-{next(self._numbers)}"
        topic = f"session.v1.response.{what}.{correlation_id}"
        async with self.host.subscribe(topic, principal=self.principal) as replies:
            request = {"correlation_id": correlation_id, **fields}
            self.host.publish(f"session.v1.request.{what}", request, principal=self.principal)
            with trio.fail_after(WAIT_S):
                reply = dict((await anext(aiter(replies))).payload)
        assert reply.pop("correlation_id") == correlation_id
        return reply

    async def said(self, session_id: str, *messages: dict[str, Any]) -> list[dict[str, Any]]:
        """The messages of a conversation, after adding some."""
        reply = await self.ask("get_messages", session_id=session_id, append_before_read=list(messages))
        return list(reply["messages"])

    async def command(self, text: str, session_id: str = "s") -> str:
        async with self.host.subscribe("agent.v1.response", principal=self.principal) as responses:
            self.host.publish(
                "cli.v1.command.execute",
                {"type": "user_input", "text": text, "session_id": session_id},
                principal=self.principal,
            )
            with trio.fail_after(WAIT_S):
                payload = (await anext(aiter(responses))).payload
        assert (payload["type"], payload["is_final"], payload["session_id"]) == ("agent_response", True, session_id)
        return str(payload["text"])

    async def tool(self, name: str, **arguments: Any) -> Any:
        answer = await self.host.tools.execute(name, arguments, principal=self.principal)
        assert not answer.is_error, answer.content
        return json.loads(answer.content)


@asynccontextmanager
async def keeping(state: Path | str = ":memory:", **config: str) -> AsyncIterator[Client]:
    async with open_host(
        [ROUTER, SESSION], trust=True, state_dir=state, config={"session": config}, strict=True
    ) as host:
        yield Client(host)


@contextmanager
def kept_in(state: Path) -> Iterator[KvStore]:
    """What capsules keep, while no host runs."""
    with closing(Stores(state)) as stores:
        yield stores.kv


async def test_messages_are_handed_out_as_they_came_in() -> None:
    said = [user("hi\n\u00e4"), {**call("c1"), "thought": "kept"}, result("c1", '"x"'), assistant("done")]
    async with keeping() as client:
        assert (await client.ask("get_messages", session_id="s"))["messages"] == []
        assert await client.said("s", *said[:2]) == said[:2]
        client.host.publish("session.v1.append", {"session_id": "s", "messages": said[2:]})
        reply = await client.ask("get_messages", session_id="s")
        assert reply == {"messages": said, "omitted": 0, "shortened": 0}


async def test_a_request_that_names_no_session_is_about_the_default_one() -> None:
    async with keeping() as client:
        await client.ask("get_messages", append_before_read=[user("a")])
        assert await client.said("default") == [user("a")]


async def test_principals_have_conversations_of_their_own() -> None:
    async with keeping() as client:
        await client.said("s", user("mine"))
        other = Client(client.host, "alice")
        assert await other.said("s") == []
        assert (await other.ask("list"))["sessions"] == []
        assert (await other.ask("delete", session_id="s")) == {"deleted": False}


async def test_conversations_outlive_the_host(tmp_path: Path) -> None:
    async with keeping(tmp_path) as client:
        await client.said("s", user("a"))
    async with keeping(tmp_path) as client:
        assert await client.said("s", assistant("b")) == [user("a"), assistant("b")]


async def test_clearing_begins_another_conversation_and_keeps_the_old_one() -> None:
    async with keeping() as client:
        await client.said("old", user("a"))
        async with client.host.subscribe("session.v1.event.*") as events:
            reply = await client.ask("clear", session_id="old")
            event = (await anext(aiter(events))).payload
        assert reply.keys() == {"new_session_id", "old_session_id"}
        new = reply["new_session_id"]
        assert reply["old_session_id"] == "old" != new
        summary = (await client.ask("get_meta", session_id=new))["session"]
        assert (summary["parent_session_id"], summary["message_count"]) == ("old", 0)
        assert event == {"kind": "created", "session_id": new, "summary": summary}
        assert await client.said("old") == [user("a")]


async def test_a_summary_tells_what_there_is_to_know() -> None:
    async with keeping() as client:
        await client.said(
            "s", {"role": "system", "content": "be nice"}, user(" " + "x" * 90), call("c1"), assistant("end")
        )
        summary = (await client.ask("get_meta", session_id="s"))["session"]
        created, updated = summary.pop("created_at"), summary.pop("updated_at")
        assert created <= updated
        assert summary == {
            "session_id": "s",
            "title": None,
            "preview": "x" * 80 + "…",
            "last_message_preview": "end",
            "message_count": 4,
            "archived": False,
            "parent_session_id": None,
            "meta": None,
        }
        assert await client.ask("get_meta", session_id="other") == {"session": None}
        assert (await client.ask("list"))["total"] == 1


async def test_an_update_changes_what_it_names_and_makes_no_conversation() -> None:
    async with keeping() as client:
        await client.said("s", user("a"))
        async with client.host.subscribe("session.v1.event.updated") as events:
            first = await client.ask("update", session_id="s", title="Trip", meta='{"pin":1}')
            event = (await anext(aiter(events))).payload
        assert event == {"kind": "updated", "session_id": "s", "summary": first["session"]}
        second = (await client.ask("update", session_id="s", title="", archived=True))["session"]
        assert (second["title"], second["meta"], second["archived"]) == (None, '{"pin":1}', True)
        assert await client.ask("update", session_id="other", title="x") == {"session": None}
        assert await client.ask("get_meta", session_id="other") == {"session": None}


async def test_what_cannot_be_done_is_answered_with_the_reason() -> None:
    async with keeping() as client:
        await client.said("s", user("a"))
        reply = await client.ask("update", session_id="s", meta="x" * 8193)
        assert reply == {"error": "A session's meta has at most 8192 bytes, not 8193."}
        assert (await client.ask("get_meta", session_id="s"))["session"]["meta"] is None
        reply = await client.ask("get_messages", session_id="s", append_before_read=[user("b"), {"role": "x"}])
        assert reply["error"].startswith("append_before_read[1] is no message: ")
        assert await client.said("s") == [user("a")]
        for session_id in (5, "x" * 241, "a\0b"):
            assert (await client.ask("get_messages", session_id=session_id)).keys() == {"error"}
        assert (await client.ask("list", cursor="a\0b")).keys() == {"error"}


@pytest.mark.parametrize("correlation_id", ["", "a.b", None, 5])
async def test_a_request_that_cannot_be_answered_is_denied(correlation_id: Any) -> None:
    async with keeping() as client:
        async with client.host.subscribe("astrid.v1.dispatch.failed.session.v1.request.list") as failures:
            client.host.publish("session.v1.request.list", {"correlation_id": correlation_id})
            with trio.fail_after(WAIT_S):
                failure = (await anext(aiter(failures))).payload
        assert failure["reason"] == "deny"
        assert "correlation_id must be a text without dots" in failure["detail"]


async def test_a_deleted_conversation_is_gone_with_all_its_messages() -> None:
    async with keeping() as client:
        for _ in range(3):
            await client.said("s", user("x" * (40 << 10)))
        async with client.host.subscribe("session.v1.event.deleted") as events:
            assert await client.ask("delete", session_id="s") == {"deleted": True}
            event = (await anext(aiter(events))).payload
        assert event == {"kind": "deleted", "session_id": "s", "summary": None}
        assert await client.ask("delete", session_id="s") == {"deleted": False}
        assert await client.said("s") == []


async def test_lists_come_in_pages_without_what_is_archived() -> None:
    async with keeping() as client:
        for number in range(5):
            await client.said(f"s{number}", user(f"{number}"))
        await client.ask("update", session_id="s1", archived=True)
        seen, cursor = [], None
        while True:
            page = await client.ask("list", limit=2, cursor=cursor)
            seen.append([entry["session_id"] for entry in page["sessions"]])
            cursor = page["next_cursor"]
            if cursor is None:
                break
        assert seen == [["s0", "s2"], ["s3", "s4"]]
        everything = await client.ask("list", include_archived=True)
        assert ([entry["session_id"] for entry in everything["sessions"]], everything["total"]) == (
            ["s0", "s1", "s2", "s3", "s4"],
            5,
        )


async def test_a_list_fits_into_a_message() -> None:
    async with keeping(history_bytes="20000") as client:
        for number in range(5):
            await client.said(f"s{number}", user("a"))
            await client.ask("update", session_id=f"s{number}", meta="m" * 8192)
        first = await client.ask("list")
        rest = await client.ask("list", cursor=first["next_cursor"])
        assert [len(first["sessions"]), len(rest["sessions"])] == [2, 2]


async def test_a_search_finds_a_text_whatever_its_capitals() -> None:
    async with keeping() as client:
        await client.said("a", user("Where is the NEEDLE?"), assistant("the needle is here"), result("c", "needle"))
        await client.said("b", user("hay"))
        await client.said("c", user("a needle"))
        await client.ask("update", session_id="c", title="Sewing", archived=True)
        found = await client.ask("search", query="Needle")
        assert found["next_cursor"] is None
        [hit] = found["results"]
        assert hit.pop("updated_at") > 0
        assert hit == {"session_id": "a", "title": None, "snippet": "Where is the NEEDLE?", "match_count": 2}
        first = await client.ask("search", query="needle", include_archived=True, limit=1)
        rest = await client.ask("search", query="needle", include_archived=True, cursor=first["next_cursor"])
        assert [(hit["session_id"], hit["title"]) for hit in rest["results"]] == [("c", "Sewing")]
        assert await client.ask("search", query="") == {"results": [], "next_cursor": None}


async def test_a_conversation_of_many_pages_is_kept_whole() -> None:
    long = [user(f"{number} " + "x" * 3000) for number in range(60)]
    async with keeping() as client:
        for at in range(0, 60, 7):
            await client.said("s", *long[at : at + 7])
        assert await client.said("s") == long
        summary = (await client.ask("get_meta", session_id="s"))["session"]
        assert (summary["message_count"], summary["preview"][:4]) == (60, "0 xx")
        assert (await client.ask("search", query="0 x"))["results"][0]["match_count"] == 6


async def test_of_a_long_conversation_the_newest_turns_are_handed_out() -> None:
    async with keeping(history_bytes="20000") as client:
        for number in range(40):
            turn = [user(f"{number}"), call(f"c{number}"), result(f"c{number}", "r" * 1000), assistant("done")]
            reply = await client.ask("get_messages", session_id="s", append_before_read=turn)
        messages = reply["messages"]
        assert len(json.dumps(messages, separators=(",", ":"))) <= 20_000
        assert (messages[0]["role"], messages[-4:]) == ("user", turn)
        assert reply["omitted"] + len(messages) == 160
        assert len(messages) >= 40


async def test_a_turn_that_is_too_long_keeps_what_the_user_wants_and_the_newest_results() -> None:
    async with keeping(history_bytes="30000") as client:
        reply = await client.ask("get_messages", session_id="s", append_before_read=[user("the task")])
        for number in range(20):
            step = [call(f"c{number}"), result(f"c{number}", f"{number} " + "r" * 5000)]
            reply = await client.ask("get_messages", session_id="s", append_before_read=step)
        messages = reply["messages"]
        assert len(json.dumps(messages, separators=(",", ":"))) <= 30_000
        assert (messages[0], messages[-2:]) == (user("the task"), step)
        assert reply["shortened"] > 0
        calls = [message["content"][0]["id"] for message in messages if message["role"] == "assistant"]
        results = [message["content"]["call_id"] for message in messages if message["role"] == "tool"]
        assert calls == results


async def test_of_a_conversation_without_end_the_oldest_messages_are_dropped() -> None:
    async with keeping(session_bytes="200000") as client:
        for number in range(12):
            reply = await client.ask(
                "get_messages", session_id="s", append_before_read=[user(f"{number} " + "x" * 40000)]
            )
        kept = (await client.ask("get_meta", session_id="s"))["session"]["message_count"]
        assert (len(reply["messages"]), reply["omitted"]) == (kept, 12 - kept)
        assert 3 <= kept <= 5


async def test_a_message_as_large_as_the_bus_takes_does_no_harm() -> None:
    async with keeping() as client:
        size = (1 << 20) - 400
        reply = await client.ask("get_messages", session_id="s", append_before_read=[user("y" * size)])
        assert (reply["shortened"], reply["omitted"]) == (1, 0)
        assert reply["messages"][0]["content"].endswith("bytes.]")
        first, second = await client.said("s", assistant("next"))
        assert (first["content"][:1], second) == ("y", assistant("next"))


@pytest.mark.parametrize("given", ["many", "-1", ""])
async def test_a_limit_that_is_no_number_is_the_usual_one(given: str) -> None:
    async with keeping(history_bytes=given, session_bytes=given) as client:
        assert await client.said("s", user("a" * 100_000)) == [user("a" * 100_000)]


async def test_what_was_not_written_by_it_is_told_and_left_alone(tmp_path: Path) -> None:
    newer = '{"schema_version":99,"messages":[]}'
    with kept_in(tmp_path) as kv:
        for session_id, thread in (("newer", newer), ("broken", "{"), ("older", '{"messages":[]}')):
            kv.set(KEPT, f"session.data.{session_id}", thread.encode())
    async with keeping(tmp_path) as client:
        reply = await client.ask("get_messages", session_id="newer", append_before_read=[user("a")])
        assert "cannot be read: it was written by a newer version" in reply["error"]
        assert "cannot be read" in (await client.ask("get_messages", session_id="broken"))["error"]
        assert await client.said("older", user("a")) == [user("a")]
        assert [entry["session_id"] for entry in (await client.ask("list"))["sessions"]] == ["older"]
        assert await client.ask("delete", session_id="broken") == {"deleted": True}
    with kept_in(tmp_path) as kv:
        assert kv.get(KEPT, "session.data.newer") == newer.encode()


async def test_what_is_kept_goes_when_it_is_not_needed_any_more(tmp_path: Path) -> None:
    async with keeping(tmp_path, session_bytes="200000") as client:
        for number in range(12):
            await client.said("long", user(f"{number} " + "x" * 40000))
        for _ in range(3):
            await client.said("gone", user("x" * 40000))
        await client.ask("delete", session_id="gone")
    with kept_in(tmp_path) as kv:
        [thread, *pages] = kv.list_keys(KEPT, "session.", 100)
        assert thread == "session.data.long"
        assert 2 <= len(pages) <= 4
        last = json.loads(kv.get(KEPT, thread) or b"")["pages"][-1]["id"]
        kv.delete(KEPT, f"session.page.{last}")
    async with keeping(tmp_path) as client:
        reply = await client.ask("get_messages", session_id="long")
        assert (len(reply["messages"]), reply["omitted"]) == (1, 11)


async def test_the_tools_read_conversations() -> None:
    async with keeping() as client:
        await client.said("s", user("a needle"), assistant("b"))
        tools = {tool.name: tool for tool in await client.host.tools.describe()}
        assert sorted(tools) == ["get_thread", "list_threads", "search_conversations"]
        assert not any(tool.mutable for tool in tools.values())
        listed = await client.tool("list_threads")
        assert (listed.keys(), listed["sessions"][0]["session_id"]) == ({"sessions", "next_cursor"}, "s")
        assert await client.tool("get_thread", session_id="s", limit=1) == {
            "session_id": "s",
            "messages": [assistant("b")],
            "omitted": 1,
        }
        assert (await client.tool("get_thread", session_id="none"))["messages"] == []
        found = await client.tool("search_conversations", query="NEEDLE", limit=5)
        assert [(hit["session_id"], hit["match_count"]) for hit in found["results"]] == [("s", 1)]


async def test_the_command_session_manages_conversations() -> None:
    async with keeping() as client:
        assert await client.command("session") == "There are no sessions."
        await client.said("s", user("a needle"), call("c1"), result("c1", "x"), assistant("b"))
        assert await client.command("session rename s Trip to Rome") == 'The session s is named "Trip to Rome" now.'
        assert await client.command("/session list") == "s  Trip to Rome  (4 messages)"
        shown = "user: a needle\nassistant: (calls read_file)\ntool: (result of c1)\nassistant: b"
        assert await client.command("session show s") == shown
        assert await client.command("session show s --limit 1") == "(3 older messages)\nassistant: b"
        assert await client.command("session search NEEDLE") == "s  Trip to Rome  (1): a needle"
        assert await client.command("session archive s") == "Archived the session s."
        assert await client.command("session list") == "There are no sessions."
        assert "archived" in await client.command("session list --all")
        assert await client.command("session unarchive s") == "The session s is not archived any more."
        assert await client.command("session delete s --yes") == "Deleted the session s."
        assert await client.command("session delete s") == "There is no session s."
        assert "There are: list, show" in await client.command("session fly")


async def test_commands_of_others_are_not_answered() -> None:
    async with keeping() as client:
        async with client.host.subscribe("agent.v1.response") as responses:
            for text in ("models", "/models set x", "sessions", "", "identity-export"):
                client.host.publish("cli.v1.command.execute", {"type": "user_input", "text": text, "session_id": "s"})
            client.host.publish("cli.v1.command.execute", {"type": "user_input", "text": "session", "session_id": "s"})
            with trio.fail_after(WAIT_S):
                assert (await anext(aiter(responses))).payload["text"] == "There are no sessions."


async def test_who_asks_for_more_than_may_be_published_in_a_second_waits_for_the_next_one() -> None:
    async with keeping() as client:
        await client.said("s", user("x" * 700_000))
        for _ in range(30):
            assert len((await client.ask("get_messages", session_id="s"))["messages"]) == 1
