"""Writing Python source: lines with indentation, fresh names, and the constants that the source refers to."""

from __future__ import annotations

import keyword
import struct
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from astrid_host.abi import runtime


def attribute(name: str) -> str:
    """A WIT name as a Python attribute: `source-id` is `source_id`, `from` is `from_`."""
    made = name.replace("-", "_")
    return f"{made}_" if keyword.iskeyword(made) else made


class Source:
    """The source of one generated function.

    Args:
        signature: its `def` line without the colon.
    """

    def __init__(self, signature: str) -> None:
        self.name = signature.split("(", 1)[0].removeprefix("def ")
        self.lines = [f"{signature}:"]
        self.constants: dict[str, Any] = dict(vars(runtime))
        self._depth = 1
        self._count = 0
        self.loops = 0

    def add(self, line: str) -> None:
        self.lines.append("    " * self._depth + line)

    @contextmanager
    def block(self, head: str) -> Generator[None]:
        self.add(head)
        self._depth += 1
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            self.add("pass")
        self._depth -= 1

    def fresh(self, stem: str = "v") -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def constant(self, value: Any, stem: str = "K") -> str:
        name = self.fresh(stem)
        self.constants[name] = value
        return name

    def packer(self, code: str) -> str:
        """`pack_into` for one value."""
        name = f"PACK_{code}"
        self.constants[name] = struct.Struct(f"<{code}").pack_into
        return name

    def compile(self) -> Any:
        """The function itself."""
        text = "\n".join(self.lines) + "\n"
        scope = dict(self.constants)
        exec(compile(text, f"<canonical ABI: {self.name}>", "exec"), scope)  # noqa: S102 - made of names of ours alone
        return scope[self.name]


class Region:
    """Fixed places in memory that are read in one go: put at the line where the region is first needed."""

    def __init__(self, source: Source, base: str) -> None:
        self._source = source
        self._base = base
        self._at = len(source.lines)
        self._depth = source._depth
        self._leaves: list[tuple[int, str, str]] = []

    def leaf(self, offset: int, code: str) -> str:
        name = self._source.fresh("m")
        self._leaves.append((offset, code, name))
        return name

    def close(self) -> None:
        """Write the line that reads all leaves."""
        if not self._leaves:
            return
        leaves = sorted(set(self._leaves))
        parts, at = ["<"], leaves[0][0]
        for offset, code, _name in leaves:
            parts.append(f"{offset - at}x" if offset > at else "")
            parts.append(code)
            at = offset + struct.calcsize(f"<{code}")
        unpack = self._source.constant(struct.Struct("".join(parts)).unpack_from, "READ")
        names = ", ".join(name for _, _, name in leaves)
        line = f"{names}, = {unpack}(view, {self._base} + {leaves[0][0]})"
        self._source.lines.insert(self._at, "    " * self._depth + line)
