"""What a host needs of its machine, looked at piece by piece. A check never raises: what goes wrong is what it finds."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from astrid_host.errors import AstridError

State: TypeAlias = Literal["ok", "note", "wrong"]
TIMEOUT_S = 10.0
MAPS_NEEDED = 32_768  # 4,096 instances of about six memory maps each, and the rest of the process
TARGET = "wasm32-unknown-unknown"
SPIN_LIMIT_S, SPIN_WITHIN_S = 0.2, 5.0

SPINNER = """(module
  (memory (export "memory") 1)
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) i32.const 1024)
  (func (export "astrid-hook-trigger") (param i32 i32 i32 i32) (result i32) (loop $on (br $on)) unreachable))"""
SPINNER_MANIFEST = f"""[package]
name = "spinner"
version = "1.0.0"
[[component]]
file = "spinner.wasm"
[limits]
timeout_secs = {SPIN_LIMIT_S}
[subscribe]
"doctor.spin" = {{ wit = "opaque", handler = "spin" }}
"""


class Check(NamedTuple):
    """One thing that was looked at.

    Attributes:
        name: what.
        state: `ok`; `note` when a host runs without it, though not as well; `wrong` when it does not.
        found: what there is.
        mend: what to do; empty when nothing has to be done.
    """

    name: str
    state: State
    found: str
    mend: str = ""


def diagnose(state_dir: Path) -> list[Check]:
    """Look at everything, in a few seconds.

    Args:
        state_dir: the state folder that a host would use.
    """
    checks: list[Callable[[], Check]] = [
        engine,
        cache_folder,
        lambda: state_folder(state_dir),
        *KERNEL,
        sandbox_of_this_user,
        cargo,
        node,
        asc,
        keyring,
    ]
    return [check() for check in checks]


# The host itself.


def engine() -> Check:
    """A guest that computes for ever has to be stopped when its time is up."""
    import trio

    try:
        took, reason = trio.run(_spin)
    except (AstridError, OSError, trio.TooSlowError) as error:
        what = str(error) or f"a guest that computes for ever was not stopped within {SPIN_WITHIN_S:g} s"
        return Check("engine", "wrong", what, "reinstall astrid-host with the wasmtime that it asks for, and report it")
    if reason != "timeout":
        mend = "reinstall astrid-host with the wasmtime that it asks for, and report it"
        return Check("engine", "wrong", f"a guest that computes for ever ended by {reason}, not by its time", mend)
    return Check(
        "engine", "ok", f"wasmtime {_version_of('wasmtime')}; an endless guest was stopped in {took * 1e3:.0f} ms"
    )


async def _spin() -> tuple[float, str]:
    import trio

    from astrid_host import open_host
    from astrid_host.bus import FAILED
    from astrid_host.engine import wat

    with tempfile.TemporaryDirectory(prefix="astrid-host-doctor-") as folder:
        place = Path(folder) / "spinner"
        place.mkdir()
        (place / "Capsule.toml").write_text(SPINNER_MANIFEST, "utf-8")
        (place / "spinner.wasm").write_bytes(wat(SPINNER))
        with trio.fail_after(SPIN_WITHIN_S):
            async with (
                open_host([place], workspace=folder, state_dir=":memory:", strict=True) as host,
                host.subscribe(f"{FAILED}doctor.spin") as failures,
            ):
                begun = time.perf_counter()
                host.publish("doctor.spin", {})
                async for event in failures:
                    return time.perf_counter() - begun, str(event.payload["reason"])
    raise AssertionError("a subscription ends only with its host")


def cache_folder() -> Check:
    """Compiled modules are kept there; without it every start compiles."""
    import platformdirs

    from astrid_host.bundled import APPLICATION
    from astrid_host.engine.cache import ModuleCache

    folder = Path(platformdirs.user_cache_dir(APPLICATION)) / "modules"
    mend = f"make {folder} a folder of yours that nobody else may write to (chmod 700), or remove it"
    if ModuleCache(folder, "").folder is None:
        return Check("cache folder", "note", f"{folder} cannot be used: every start compiles all capsules", mend)
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
        files = [entry.stat().st_size for entry in os.scandir(folder) if entry.is_file(follow_symlinks=False)]
    except OSError as error:
        return Check("cache folder", "note", f"{folder} cannot be written: {error.strerror or error}", mend)
    return Check("cache folder", "ok", f"{folder}: {len(files)} files, {sum(files) / 1e6:.1f} MB")


def state_folder(folder: Path) -> Check:
    """Databases and homes are kept there."""
    from astrid_host.stores.database import FILE, Database

    try:
        if _made_for_trial(folder):
            return Check("state folder", "ok", f"{folder} is made by the first host that runs")
    except OSError as error:
        why = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        return Check("state folder", "wrong", f"{folder} cannot be made: {why}", "give another with --state-dir")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
        if (folder / FILE).exists():
            Database.open(folder).close()
    except OSError as error:
        mend = f"make {folder} a folder of yours, or give another with --state-dir"
        return Check("state folder", "wrong", f"{folder} cannot be written: {error.strerror or error}", mend)
    except AstridError as error:
        return Check("state folder", "wrong", str(error), "do as it says, or give another folder with --state-dir")
    return Check("state folder", "ok", str(folder))


def _made_for_trial(folder: Path) -> bool:
    """Make a folder that is not there as a host does, write into it, and remove all of it again; False when it is there.

    Whether that works, no question to the kernel about rights tells: not for root, files in the way, or /proc.

    Raises:
        OSError: it cannot be made or written.
    """
    absolute = folder.absolute()
    if absolute.is_dir():
        return False
    made: list[Path] = []
    try:
        for place in (*reversed(absolute.parents), absolute):
            if not place.is_dir():
                if os.path.lexists(place):
                    raise NotADirectoryError(errno.ENOTDIR, "it is no folder", str(place))
                place.mkdir(mode=0o700)
                made.append(place)
        with tempfile.TemporaryFile(dir=absolute):
            return True
    finally:
        for place in reversed(made):
            with contextlib.suppress(OSError):  # a host that began meanwhile keeps its state there
                place.rmdir()


# The kernel.


def pidfd() -> Check:
    """Names a child so that its number cannot come to mean another process."""
    if not hasattr(os, "pidfd_open"):
        return _no_linux("pidfd")
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        return Check("pidfd", "wrong", f"pidfd_open: {error.strerror}", "run on Linux 5.3 or later, and allow the call")
    return Check("pidfd", "ok", "children are signalled by descriptors")


def openat2() -> Check:
    """Resolves a path below a folder in one step."""
    if sys.platform != "linux":
        return _no_linux("openat2")
    release = os.uname().release
    major, minor = (int("".join(filter(str.isdigit, part)) or 0) for part in [*release.split("."), "0"][:2])
    if (major, minor) < (5, 6):
        return Check("openat2", "note", f"Linux {release} does not have it", "run on Linux 5.6 or later")
    return Check("openat2", "ok", f"Linux {release} has it")


def memfd() -> Check:
    """Holds what is handed to a child without a file on disk."""
    if not hasattr(os, "memfd_create"):
        return _no_linux("memfd")
    try:
        os.close(os.memfd_create("astrid-host-doctor"))
    except OSError as error:
        return Check(
            "memfd", "note", f"memfd_create: {error.strerror}", "allow the call in the container's seccomp profile"
        )
    return Check("memfd", "ok", "files without a name can be made")


def max_map_count() -> Check:
    """Each instance of a guest takes about six memory maps."""
    try:
        count = int(Path("/proc/sys/vm/max_map_count").read_text())
    except (OSError, ValueError):
        return _no_linux("max_map_count")
    if count < MAPS_NEEDED:
        mend = "sysctl -w vm.max_map_count=65530, as root; in /etc/sysctl.d to keep it"
        return Check("max_map_count", "note", f"{count}: too few for 4,096 instances, which need {MAPS_NEEDED}", mend)
    return Check("max_map_count", "ok", str(count))


KERNEL: tuple[Callable[[], Check], ...] = (pidfd, openat2, memfd, max_map_count)


def _no_linux(name: str) -> Check:
    return Check(name, "note", f"{sys.platform} does not have it", "run on Linux for what depends on it")


# Programs beside it.


def sandbox() -> Check:
    """Children of capsules run in it, when it works."""
    from astrid_host.hostcalls.process import sandbox_state

    state = sandbox_state()
    if state.works and not state.shares_network:
        return Check("sandbox", "ok", state.detail)
    found, _, mend = state.detail.partition(": ")
    return Check("sandbox", "note", found, mend or "run on Linux with bubblewrap")


def sandbox_of_this_user() -> Check:
    """The sandbox, and what it does not take from the children of a host that is root."""
    from astrid_host.hostcalls.process import remains_of_root

    check, remains = sandbox(), remains_of_root()
    if remains is None:
        return check
    mend = "run the host as a user of its own"
    return Check(check.name, "note", f"{check.found}; {remains}", f"{check.mend}; {mend}" if check.mend else mend)


def cargo() -> Check:
    """Builds capsules written in Rust."""
    version, root = _said("cargo", "--version"), _said("rustc", "--print", "sysroot")
    if version is None or root is None:
        mend = "install Rust (https://rustup.rs), to build capsules in it"
        return Check("cargo", "note", "there is no Rust that runs", mend)
    if not (Path(root) / "lib" / "rustlib" / TARGET / "lib").is_dir():
        return Check("cargo", "note", f"{version}, without the target {TARGET}", f"rustup target add {TARGET}")
    return Check("cargo", "ok", f"{version}, with {TARGET}")


def node() -> Check:
    """Runs the compiler of AssemblyScript."""
    version = _said("node", "--version")
    if version is None:
        return Check("node", "note", "there is no Node.js", "install Node.js, to build capsules in AssemblyScript")
    return Check("node", "ok", version)


def asc() -> Check:
    """Compiles AssemblyScript."""
    from astrid_host.bundled import capsules_folder

    in_checkout = capsules_folder().parent / "guests" / "assemblyscript" / "node_modules" / ".bin" / "asc"
    version = _said(str(in_checkout), "--version") or _said("asc", "--version")
    if version is None:
        mend = "npm install -g assemblyscript, to build capsules in it"
        return Check("asc", "note", "there is no AssemblyScript compiler", mend)
    return Check("asc", "ok", version)


def keyring() -> Check:
    """Keeps secrets."""
    from astrid_host.stores.keyrings import os_keyring

    try:
        found = os_keyring()
        found.set("astrid-host doctor", "trial", "kept")
        found.delete("astrid-host doctor", "trial")
    except AstridError as error:
        return Check(
            "keyring", "note", "none works: secrets are kept in a file that only this user can read", str(error)
        )
    return Check("keyring", "ok", found.name)


def _said(program: str, *arguments: str) -> str | None:
    """The first line that a program prints; None when it is not there or does not do what it is asked."""
    path = shutil.which(program)
    if path is None:
        return None
    try:
        # In the root folder no file of a project says which version is wanted.
        done = subprocess.run(
            [path, *arguments],
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    lines = done.stdout.strip().splitlines()
    return lines[0] if done.returncode == 0 and lines else None


def _version_of(package: str) -> str:
    from importlib.metadata import version

    return version(package)
