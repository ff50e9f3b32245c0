"""Embed a host in an asyncio program: trio runs as a guest of asyncio's loop, on the same thread.

Run it in any folder: `python examples/embed_asyncio.py`. Everything that touches the host runs under trio; a queue carries
requests to it, and asyncio futures carry the results back.
"""

import asyncio
from typing import Any

import trio

import astrid_host

Request = tuple[str, dict[str, Any], "asyncio.Future[str]"]


async def serve(requests: trio.MemoryReceiveChannel[Request]) -> None:
    """Under trio: call the tools that are asked for, many at once, until the channel is closed."""

    async def call(name: str, arguments: dict[str, Any], answer: "asyncio.Future[str]") -> None:
        answer.set_result((await host.tools.execute(name, arguments)).content)

    async with astrid_host.open_host(workspace=".", state_dir=":memory:") as host, trio.open_nursery() as nursery:
        async for request in requests:
            nursery.start_soon(call, *request)


async def main() -> None:
    """Under asyncio: start trio beside it, and ask for two tools at once."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    send, receive = trio.open_memory_channel[Request](64)
    trio.lowlevel.start_guest_run(
        serve,
        receive,
        run_sync_soon_threadsafe=loop.call_soon_threadsafe,
        done_callback=lambda outcome: ended.set_result(outcome.unwrap()),
        host_uses_signal_set_wakeup_fd=True,
    )

    def ask(name: str, **arguments: Any) -> "asyncio.Future[str]":
        answer = loop.create_future()
        send.send_nowait((name, arguments, answer))
        return answer

    for text in await asyncio.gather(ask("word_count", text="a b"), ask("reverse_text", text="hello")):
        print(text)
    send.close()
    await ended


if __name__ == "__main__":
    asyncio.run(main())
