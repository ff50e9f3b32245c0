"""astrid:uplink as guests call it, and what arrives at whoever embeds the host."""

from __future__ import annotations

import threading
import time
import uuid
from typing import Any

import pytest
import trio
from people import Town, call, in_no_time, manifest, refusal, town

from astrid_host.errors import HostClosed
from astrid_host.hostcalls.uplink import Uplink, Uplinks
from astrid_host.manifest import Uplink as Row

MAY = call(of=manifest(uplink=True))
OTHER = call(of=manifest(uplink=True), id="other", source_id=str(uuid.uuid4()))


def made(here: Town) -> tuple[Uplinks, Uplink]:
    uplinks = Uplinks(here.scheduler)
    return uplinks, Uplink(uplinks)


async def test_it_has_every_function_of_the_interface_and_each_is_audited() -> None:
    async with town() as here:
        functions = made(here)[1].functions()
        assert sorted(functions) == ["uplink-register", "uplink-send"]
        targets = [
            functions["uplink-register"].audited("bot", "discord", "chat"),  # type: ignore[misc]
            functions["uplink-send"].audited("u", "ann", "what was said"),  # type: ignore[misc]
        ]
        assert targets == ["discord:bot", "u:ann"]


async def test_what_a_bridge_sends_arrives_in_order_with_where_it_comes_from() -> None:
    async with town() as here:
        uplinks, functions = made(here)
        number = functions.register(MAY, "bot", "discord", "chat")
        assert str(uuid.UUID(number)) == number
        async with uplinks.inbound() as messages:
            for text in ("a", "", "ü\n\0"):
                assert functions.send(MAY, number, "ann", text) is True
            first = await anext(messages)
            assert [first.content, (await anext(messages)).content, (await anext(messages)).content] == [
                "a",
                "",
                "ü\n\0",
            ]
            assert (first.uplink.name, first.uplink.platform, first.uplink.profile) == ("bot", "discord", "chat")
            assert (first.uplink.id, first.capsule, first.principal, first.platform_user_id) == (
                number,
                "shell",
                "alice",
                "ann",
            )
            assert abs(first.time - time.time()) < 60


async def test_a_reader_that_waits_is_woken_also_from_another_thread() -> None:
    async with town() as here:
        uplinks, functions = made(here)
        number = functions.register(MAY, "bot", "discord", "chat")
        got: list[str] = []

        async def read() -> None:
            async with uplinks.inbound() as messages:
                ready.set()
                async for message in messages:
                    got.append(message.content)
                    if len(got) == 100:
                        return

        ready = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await ready.wait()
            threads = [
                threading.Thread(target=lambda: [functions.send(MAY, number, "ann", str(n)) for n in range(25)])
                for _ in range(4)
            ]
            for thread in threads:
                thread.start()
        for thread in threads:
            thread.join()
        assert sorted(got, key=int) == [str(number) for number in range(25) for _ in range(4)]


async def test_without_a_reader_nothing_is_accepted() -> None:
    async with town() as here:
        uplinks, functions = made(here)
        number = functions.register(MAY, "bot", "discord", "chat")
        assert refusal(lambda: functions.send(MAY, number, "ann", "lost")) == "quota"
        async with uplinks.inbound() as messages:
            functions.send(MAY, number, "ann", "kept")
            assert (await anext(messages)).content == "kept"
            functions.send(MAY, number, "ann", "not taken")
        assert refusal(lambda: functions.send(MAY, number, "ann", "lost")) == "quota"
        async with uplinks.inbound() as messages:
            functions.send(MAY, number, "ann", "new")
            assert (await anext(messages)).content == "new"


async def test_a_queue_that_is_full_says_so_until_something_is_taken() -> None:
    async with town() as here:
        uplinks, functions = made(here)
        number = functions.register(MAY, "bot", "discord", "chat")
        async with uplinks.inbound() as messages:
            sent = [functions.send(MAY, number, "ann", str(count)) for count in range(130)]
            assert sent == [True] * 128 + [False] * 2
            assert (await anext(messages)).content == "0"
            assert functions.send(MAY, number, "ann", "128") is True
            assert functions.send(MAY, number, "ann", "129") is False
        async with uplinks.inbound() as messages:
            sent = [functions.send(MAY, number, "ann", "x" * (1 << 20)) for _ in range(4)]
            assert sent == [True, True, False, False]


async def test_there_is_one_reader_at_a_time() -> None:
    async with town() as here:
        uplinks, _ = made(here)
        async with uplinks.inbound():
            with pytest.raises(RuntimeError, match="already"):
                await uplinks.inbound().__aenter__()
        async with uplinks.inbound():
            pass


def test_a_cancelled_wait_loses_nothing() -> None:
    async def body(here: Town) -> None:
        uplinks, functions = made(here)
        number = functions.register(MAY, "bot", "discord", "chat")
        async with uplinks.inbound() as messages:
            with trio.move_on_after(1):
                await anext(messages)
            functions.send(MAY, number, "ann", "a")
            with trio.CancelScope() as scope:
                scope.cancel()
                await anext(messages)
            assert (await anext(messages)).content == "a"

    in_no_time(body)


async def test_the_end_of_the_host_ends_the_wait() -> None:
    async with town() as here:
        uplinks, _ = made(here)

        async def read() -> None:
            async with uplinks.inbound() as messages:
                ready.set()
                with pytest.raises(HostClosed):
                    await anext(messages)

        ready = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await ready.wait()
            await trio.testing.wait_all_tasks_blocked()
            await here.scheduler.close()


async def test_a_name_and_platform_are_taken_once_by_each_capsule_and_each_has_32() -> None:
    async with town() as here:
        uplinks, functions = made(here)
        functions.register(MAY, "bot", "discord", "chat")
        assert refusal(lambda: functions.register(MAY, "bot", "discord", "notify")) == "invalid-input"
        functions.register(MAY, "bot", "telegram", "chat")
        functions.register(OTHER, "bot", "discord", "chat")
        for count in range(30):
            functions.register(MAY, f"bot {count}", "discord", "bridge")
        assert refusal(lambda: functions.register(MAY, "one more", "discord", "chat")) == "quota"
        assert refusal(lambda: functions.register(MAY, "bot", "discord", "chat")) == "invalid-input"
        functions.register(OTHER, "one more", "discord", "chat")
        uplinks.forget(MAY.capsule.source_id)
        functions.register(MAY, "bot", "discord", "chat")
        assert refusal(lambda: functions.register(OTHER, "bot", "discord", "chat")) == "invalid-input"


@pytest.mark.parametrize("text", ["", " ", "a\nb", "\0", "\u202e", "a" * 65])
async def test_a_bridge_has_a_name_and_a_platform(text: str) -> None:
    async with town() as here:
        _, functions = made(here)
        assert refusal(lambda: functions.register(MAY, text, "discord", "chat")) == "invalid-input"
        assert refusal(lambda: functions.register(MAY, "bot", text, "chat")) == "invalid-input"


async def test_a_profile_is_what_the_manifest_says_where_it_says_one() -> None:
    rows = (Row("bot", "discord", "notify"), Row("other", "discord", None), Row("bot", "slack", "Chat"))
    declared = call(of=manifest(rows, uplink=True))
    async with town() as here:
        _, functions = made(here)
        assert refusal(lambda: functions.register(declared, "bot", "discord", "chat")) == "invalid-profile"
        functions.register(declared, "bot", "discord", "notify")
        functions.register(declared, "other", "discord", "chat")
        functions.register(declared, "bot", "telegram", "chat")


@pytest.mark.parametrize(
    ("uplink", "user", "content", "expected"),
    [
        ("", "ann", "x", "invalid-input"),
        ("not a uuid", "ann", "x", "invalid-input"),
        ("a" * 65, "ann", "x", "invalid-input"),
        (str(uuid.UUID(int=7)), "ann", "x", "unknown-uplink"),
        ("own", "", "x", "invalid-input"),
        ("own", "a" * 65, "x", "invalid-input"),
        ("own", "ann", "x" * ((1 << 20) + 1), "invalid-input"),
        ("own", "ann", "ü" * ((1 << 19) + 1), "invalid-input"),
        ("other", "ann", "x", "unknown-uplink"),
        ("forgotten", "ann", "x", "unknown-uplink"),
    ],
)
async def test_what_cannot_be_sent_has_its_own_error(uplink: str, user: str, content: str, expected: str) -> None:
    async with town() as here:
        uplinks, functions = made(here)
        forgotten = functions.register(MAY, "old", "discord", "chat")
        uplinks.forget(MAY.capsule.source_id)
        known = {
            "own": functions.register(MAY, "bot", "discord", "chat"),
            "other": functions.register(OTHER, "bot", "discord", "chat"),
            "forgotten": forgotten,
        }
        async with uplinks.inbound():
            assert refusal(lambda: functions.send(MAY, known.get(uplink, uplink), user, content)) == expected
            assert functions.send(MAY, known["own"].upper(), "a" * 64, "x" * (1 << 20)) is True


async def test_without_the_capability_nothing_is_done_or_told() -> None:
    denied: Any = call()
    async with town() as here:
        uplinks, functions = made(here)
        number = functions.register(MAY, "bot", "discord", "chat")
        async with uplinks.inbound():
            for use in (
                lambda: functions.register(denied, "bot", "discord", "chat"),
                lambda: functions.register(denied, "", "", "chat"),
                lambda: functions.send(denied, number, "ann", "x"),
                lambda: functions.send(denied, "", "", ""),
            ):
                assert refusal(use) == "capability-denied"
