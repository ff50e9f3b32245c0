"""What the whole host may take: the operator's ceilings, whatever a capsule's manifest asks for.

They come from the `[host]` table of `host.toml` in the state folder, under what `open_host(limits=...)` or the command line
gives. A wrong value is an error with file and line, an unknown key a warning; both name the mend. Each key is one field of
`HostLimits`, whose annotation says what it counts and within which bounds; docs/limits.md has a row for each.
"""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, get_type_hints

import msgspec

from astrid_host.errors import ManifestError
from astrid_host.manifest.problems import Problem, quoted, shown
from astrid_host.manifest.reading import parse_toml, read_file
from astrid_host.manifest.sheet import Sheet

log = logging.getLogger(__name__)

FILE = "host.toml"
TABLE = "host"
KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40
DAY_S = 86_400.0
_UNITS = {"": 1, "b": 1, "kib": KIB, "mib": MIB, "gib": GIB, "tib": TIB, "kb": 10**3, "mb": 10**6, "gb": 10**9}
_SIZE = re.compile(r"([0-9]{1,16}(?:\.[0-9]{1,6})?) ?([A-Za-z]{0,3})")
_SHORT_UNITS = {"k": "kib", "m": "mib", "g": "gib", "t": "tib"}


class Key(NamedTuple):
    """What a key counts, and within which bounds."""

    counts: Literal["bytes", "seconds", "things"]
    least: float
    most: float


Bytes: TypeAlias = Annotated[int, Key("bytes", 64 * KIB, 64 * TIB)]
Seconds: TypeAlias = Annotated[float, Key("seconds", 0.001, DAY_S)]
Count: TypeAlias = Annotated[int, Key("things", 1, 1 << 20)]


def machine_memory() -> int:
    """The memory of this machine in bytes; 4 GiB where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return 4 * GIB


def _share_of_memory() -> int:
    return min(2 * GIB, machine_memory() // 4)


class HostLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The ceilings of one host.

    Attributes:
        memory: bytes of linear memory that the guests of all capsules may have together; by default 2 GiB, or a quarter of
            the machine's memory where that is less.
        instance_memory: the most that a manifest's `memory_bytes` counts for.
        call_secs: the most that a manifest's `timeout_secs` counts for.
        concurrency: the most that a manifest's `concurrency` counts for.
        waiting: bytes of events that may wait, in all queues, subscriptions and connections together.
        waiting_of_principal: the same for the events of one principal.
        watched: bytes of events that are kept for those who only watch.
        call_bytes: what the texts and lists of one call between guest and host may take in the host.
        publish_bytes_per_sec: what one capsule may publish in a second on behalf of one principal.
        compile_memory: bytes that a process which compiles a module may take.
        compile_secs: for how long it may compile one.
        module_cache: bytes of compiled modules that are kept; what was not used for the longest time goes first.
        hook_secs: for how long an `astrid-install` or `astrid-upgrade` may run, what it waits for included.
        start_secs: for how long a host that starts waits for modules and hooks that take long; it goes on without them then, and
            they join it when they are done.
        kv: bytes that one capsule may keep in kv for one principal, keys and values.
        kv_of_all: the same for all of them together.
        disk_free: bytes of a disk that guests' files leave free; what would take more of it is refused.
        audit: bytes of the audit's rows; the oldest are let go, and what they were is vouched for by a checkpoint.
    """

    memory: Bytes = msgspec.field(default_factory=_share_of_memory)
    instance_memory: Bytes = 512 * MIB
    call_secs: Seconds = 3600.0
    concurrency: Count = 128
    waiting: Bytes = 256 * MIB
    waiting_of_principal: Bytes = 64 * MIB
    watched: Bytes = 16 * MIB
    call_bytes: Bytes = 64 * MIB
    publish_bytes_per_sec: Bytes = 10 * MIB
    compile_memory: Bytes = 2 * GIB
    compile_secs: Seconds = 60.0
    module_cache: Bytes = 512 * MIB
    hook_secs: Seconds = 30.0
    start_secs: Seconds = 2.0
    kv: Bytes = 256 * MIB
    kv_of_all: Bytes = 4 * GIB
    disk_free: Bytes = 256 * MIB
    audit: Bytes = 512 * MIB


@cache
def keys() -> Mapping[str, Key]:
    """Every key, in the order of the fields."""
    hints = get_type_hints(HostLimits, include_extras=True)
    return {name: hints[name].__metadata__[0] for name in HostLimits.__struct_fields__}


def bytes_of(text: str) -> int:
    """A size as people write it: `1073741824`, `512MiB`, `2GiB`, `1.5 GiB`, `2G`.

    Raises:
        ValueError: it is no such size.
    """
    found = _SIZE.fullmatch(text.strip())
    unit = found[2].lower() if found else ""
    unit = _SHORT_UNITS.get(unit, unit)
    if found is None or unit not in _UNITS:
        raise ValueError(f"a size is a number with B, KiB, MiB, GiB or TiB, such as 2GiB; given {quoted(text[:60])}")
    return int(float(found[1]) * _UNITS[unit])


def value_of(name: str, given: Any) -> int | float:
    """The value of a key, as it was written or given.

    Raises:
        ValueError: it is of another kind, or out of bounds; the message has no place.
    """
    key = keys()[name]
    value = given
    if key.counts == "bytes" and isinstance(given, str):
        value = bytes_of(given)
    kinds = (int, float) if key.counts == "seconds" else (int,)
    if isinstance(value, bool) or not isinstance(value, kinds) or not math.isfinite(value):
        wanted = {"bytes": 'a size, such as "2GiB"', "seconds": "a number of seconds", "things": "a whole number"}
        raise ValueError(f"{name} must be {wanted[key.counts]}; found {shown(given)}")
    if not key.least <= value <= key.most:
        raise ValueError(f"{name} must be {key.least:.15g} to {key.most:.15g} {key.counts}; found {shown(given)}")
    return float(value) if key.counts == "seconds" else int(value)


def read_limits(path: Path) -> dict[str, int | float]:
    """What `host.toml` says; nothing when there is no such file. Warnings are logged.

    Args:
        path: of the file.

    Raises:
        ManifestError: it cannot be read, is not TOML, or has a wrong value; all problems are told with their lines.
    """
    if not path.exists():
        return {}
    text = read_file(path)
    if isinstance(text, Problem):
        raise ManifestError([text])
    data = parse_toml(text, path)
    if isinstance(data, Problem):
        raise ManifestError([data])
    return _given(Sheet(data, text, path))


def _given(sheet: Sheet) -> dict[str, int | float]:
    sheet.unknown(sheet.data, (TABLE,))
    table = sheet.table(sheet.data, TABLE)
    sheet.unknown(table, keys(), TABLE)
    found = {}
    for name in keys():
        if name in table:
            try:
                found[name] = value_of(name, table[name])
            except ValueError as error:
                sheet.error(str(error), TABLE, name)
    problems = sheet.found()
    for problem in problems:
        if problem.severity == "warning":
            log.warning("%s", problem)
    errors = [problem for problem in problems if problem.severity == "error"]
    if errors:
        raise ManifestError(errors)
    return found


def host_limits(state_folder: Path | None, given: HostLimits | Mapping[str, Any] | None = None) -> HostLimits:
    """The ceilings of a host.

    Args:
        state_folder: where `host.toml` may be; None for a host that has no such folder.
        given: a whole structure, which is taken as it is, or single keys that go before those of the file.

    Raises:
        ValueError: a given key is unknown or has a wrong value.
        ManifestError: the file cannot be used.
    """
    if isinstance(given, HostLimits):
        return HostLimits(**{name: _checked(name, getattr(given, name)) for name in keys()})  # type: ignore[arg-type]
    read = read_limits(state_folder / FILE) if state_folder is not None else {}
    for name, value in (given or {}).items():
        if name not in keys():
            raise ValueError(f"limits: there is no {shown(name)}; there are {', '.join(keys())}")
        read[name] = _checked(name, value)
    return HostLimits(**read)  # type: ignore[arg-type]


def _checked(name: str, value: Any) -> int | float:
    try:
        return value_of(name, value)
    except ValueError as error:
        raise ValueError(f"limits: {error}") from None
