"""Embed a host in a trio program: call a tool, see what it did, follow its events.

Run it in any folder: `python examples/embed_trio.py`. Nothing is kept, because the state folder is in memory.
"""

import trio

import astrid_host


async def main() -> None:
    """Call two tools and print what came of them."""
    async with astrid_host.open_host(workspace=".", state_dir=":memory:") as host:
        done = await host.tools.execute("word_count", {"text": "one two\nthree"}, principal="alice")
        print("word_count:", done.content)

        failed = await host.tools.execute("no_such_tool", {})  # never raises: the failure is the result
        print("no_such_tool:", failed.is_error, failed.content)

        async with host.subscribe("tool.v1.execute.*.result") as events:
            await host.tools.execute("reverse_text", {"text": "hello"})
            event = await anext(events)
            print(event.topic, event.payload["result"]["content"])


if __name__ == "__main__":
    trio.run(main)
