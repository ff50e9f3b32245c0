"""The process whose time is taken: `imports` imports third-party packages, `host FOLDER` opens the host and closes it.

`host` writes what it compiled and which capsules it has as one line of JSON; FOLDER keeps the host's state.
"""

from __future__ import annotations

import sys


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
    import json

    import astrid_host
    from astrid_host import host as composition

    engines = []

    class Watched(composition.Engine):
        def __init__(self, *args: object) -> None:
            super().__init__(*args)  # type: ignore[arg-type]
            engines.append(self)

    composition.Engine = Watched  # type: ignore[misc]
    async with astrid_host.open_host(state_dir=folder, workspace=folder, strict=True) as opened:
        states = {name: info.state for name, info in opened.capsules.items()}
    print(json.dumps({"compiled": sum(engine.compiled for engine in engines), "capsules": states}))


if __name__ == "__main__":
    if sys.argv[1] == "imports":
        imports()
    else:
        import trio

        trio.run(host, sys.argv[2])
