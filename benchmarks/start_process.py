"""The process whose time is taken: `imports` imports third-party packages, `host FOLDER` opens the host and closes it.

`host` writes what it compiled and which capsules it has as one line of JSON; FOLDER keeps the host's state.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def imports() -> None:
    """What opening the host needs that is not the host's own."""
    import sqlite3

    import blake3
    import msgspec
    import platformdirs
    import trio
    import wasmtime

    assert all((blake3, msgspec, platformdirs, sqlite3, trio, wasmtime))


async def host(folder: str) -> None:
    """Open the host with the bundled capsules, all of which must load."""
    import msgspec

    import astrid_host
    from astrid_host.engine import Engine

    engines: list[Engine] = []
    make = Engine.__init__

    def watched(engine: Engine, cache: Path | None) -> None:
        make(engine, cache)
        engines.append(engine)

    Engine.__init__ = watched  # type: ignore[method-assign, assignment]
    async with astrid_host.open_host(state_dir=folder, workspace=folder, strict=True) as opened:
        states = {name: info.state for name, info in opened.capsules.items()}
    told = {"compiled": sum(engine.compiled for engine in engines), "capsules": states}
    print(msgspec.json.encode(told).decode())


if __name__ == "__main__":
    if sys.argv[1] == "imports":
        imports()
    else:
        import trio

        trio.run(host, sys.argv[2])
