"""Files of the kernel that a child in the sandbox sees, but may not write to, or not see at all.

A sandbox of root's runs with root's right to files: in /proc and /sys that is the right to change how the kernel works, up to
which program it runs as root (`core_pattern`). So all that is writable at the top of /proc, all folders there but those of
processes, and all of /sys are mounted read-only; what tells of memory, keys and firmware is empty, as containers have it.
"""

from __future__ import annotations

import functools
import os
import stat

PROC, SYS = "/proc", "/sys"
# Of these not even names are seen, or their content is not for reading.
_MASKED_FOLDERS = ("acpi", "asound", "scsi")
_MASKED_FILES = (
    *("kallsyms", "kcore", "key-users", "keys", "kmsg", "latency_stats", "sched_debug", "sysrq-trigger", "timer_list"),
    "timer_stats",
)
_MASKED_IN_SYS = (
    *("/sys/devices/virtual/powercap", "/sys/firmware", "/sys/fs/bpf", "/sys/fs/fuse/connections"),
    *("/sys/kernel/debug", "/sys/kernel/security", "/sys/kernel/tracing"),
)


@functools.cache
def kernel_covers() -> dict[str, tuple[str, ...]]:
    """What bubblewrap mounts over the kernel's files, by where. Asks the system once a process.

    Empty where there is no /proc.
    """
    covers: dict[str, tuple[str, ...]] = {}
    for name in sorted(_names(PROC)):
        path = f"{PROC}/{name}"
        mode = _mode(path)
        if name.isdigit() or mode is None or stat.S_ISLNK(mode):  # processes are the sandbox's own
            continue
        if stat.S_ISDIR(mode):
            masked = name in _MASKED_FOLDERS
            covers[path] = ("--tmpfs", path) if masked else ("--ro-bind-try", path, path)
        elif name in _MASKED_FILES or not mode & stat.S_IROTH:
            covers[path] = ("--ro-bind", "/dev/null", path)
        elif mode & 0o222:
            covers[path] = ("--ro-bind-try", path, path)
    covers |= {path: ("--tmpfs", path) for path in _MASKED_IN_SYS if os.path.isdir(path)}
    return covers


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _mode(path: str) -> int | None:
    try:
        return os.lstat(path).st_mode
    except OSError:
        return None
