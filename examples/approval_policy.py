"""Answer approvals by a policy of your own, where no person can be asked.

Run it in any folder: `python examples/approval_policy.py`. It writes into a temporary workspace. The policy is asked for each
call that changes something; a denial is a result that tells the model so.
"""

import json
import tempfile
from pathlib import Path

import trio

import astrid_host


class OnlyNotes:
    """Allows writing below `notes/`, and nothing else."""

    def decide(self, asked: astrid_host.Asked) -> bool | None:
        """Return True to approve this call once, False to deny it, None to ask whoever listens for questions."""
        print("asked:", asked.capsule, asked.action, asked.resource)
        if asked.action != "write_file":
            return False
        arguments = json.loads(asked.resource.removeprefix("write_file "))
        return Path(arguments["file_path"]).parts[0] == "notes"


async def main() -> None:
    """Try to write two files."""
    with tempfile.TemporaryDirectory() as workspace:
        Path(workspace, "notes").mkdir()
        async with astrid_host.open_host(workspace=workspace, state_dir=":memory:", approvals=OnlyNotes()) as host:
            for path in ("notes/today.md", "secrets.md"):
                done = await host.tools.execute("write_file", {"file_path": path, "content": "hi\n"})
                print(path, "->", done.content)
        print("there now:", sorted(path.name for path in Path(workspace).rglob("*.md")))


if __name__ == "__main__":
    trio.run(main)
