"""Builds the guests into `capsules/`, one into `tests/guests/`, and tells whether what is committed there was built from
these sources.

    python3 guests/build_guests.py build    build all of them and note in built.toml what was built from what
    python3 guests/build_guests.py check    compare built.toml with the sources and the files; needs no compiler
    python3 guests/build_guests.py lint     formatting and clippy
    python3 guests/build_guests.py test     the tests of the Rust guests, on this machine

Needs Python 3.11 alone: `build` finds or installs Rust (see rust_toolchain.py), and Node and npm where apt-get has
them. Ends with exit code 1 and the reason when something is not as it should be.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import rust_toolchain
from rust_toolchain import TARGET, NoToolchain, RustToolchain

GUESTS = Path(__file__).resolve().parent
ROOT = GUESTS.parent
RUST = GUESTS / "rust"
ASSEMBLYSCRIPT = GUESTS / "assemblyscript"
RECORD = GUESTS / "built.toml"
CAPSULES = ROOT / "capsules"
OLDEST_NODE = 20
# What builds and editors leave beside sources.
LEFT_BEHIND = {"target", "build", "node_modules", "Cargo.lock", "package-lock.json", "__pycache__"}


class Failed(Exception):
    """What keeps the guests from being built or checked, in words for a person."""


@dataclass(frozen=True)
class Guest:
    """A capsule that is built from source.

    Attributes:
        name: of the package and of its folder.
        sources: files and folders that it is built from.
        built: where its compiler puts it.
        capsules: the folder that its folder is in.
    """

    name: str
    sources: tuple[Path, ...]
    built: Path
    capsules: Path = CAPSULES

    @property
    def file(self) -> Path:
        """Where the host loads it from."""
        return self.capsules / self.name / f"{self.name}.wasm"


def _rust(name: str, capsules: Path = CAPSULES, *more_sources: Path) -> Guest:
    target = Path(os.environ.get("CARGO_TARGET_DIR", RUST / "target")).resolve()
    built = target / TARGET / "release" / f"{name.replace('-', '_')}.wasm"
    return Guest(name, (RUST / name, RUST / "Cargo.toml", RUST / ".cargo", *more_sources), built, capsules)


def _assemblyscript(name: str) -> Guest:
    folder = ASSEMBLYSCRIPT
    sources = (folder / name, folder / "sdk", folder / "package.json", folder / "build.mjs")
    return Guest(name, sources, folder / "build" / f"{name}.wasm")


TOOLS = ("router", "dead-letter", "http", "kv-notes")
AGENT = ("identity", "registry")
BUNDLED = (
    *(_rust(name) for name in (*TOOLS, *AGENT)),
    *(_rust(name, CAPSULES, RUST / "whole-numbers") for name in ("fs", "shell", "session")),
    _rust("react", CAPSULES, RUST / "context-window"),
    _rust("openai-compat", CAPSULES, RUST / "context-window", ROOT / "wit"),
    *(_rust(name, CAPSULES, RUST / "describing") for name in ("gatekeeper", "prompt-builder")),
)
# For tests alone: it is no capsule that comes with the host, and calls whatever the host declares.
PROBE = _rust("probe", ROOT / "tests" / "guests", ROOT / "wit")
RUST_GUESTS = (*BUNDLED, PROBE)
ASSEMBLYSCRIPT_GUESTS = tuple(_assemblyscript(name) for name in ("word-tools",))
ALL = (*RUST_GUESTS, *ASSEMBLYSCRIPT_GUESTS)


# Building.


def build() -> None:
    """Build every guest, copy it to its capsule and write the record."""
    made_by = dict.fromkeys((guest.name for guest in RUST_GUESTS), _build_rust())
    made_by |= dict.fromkeys((guest.name for guest in ASSEMBLYSCRIPT_GUESTS), _build_assemblyscript())
    for guest in ALL:
        shutil.copyfile(guest.built, guest.file)
        print(f"{guest.file.relative_to(ROOT)}: {guest.file.stat().st_size} bytes")
    _write_record(made_by)


def _build_rust() -> str:
    rust = rust_toolchain.find()
    print(f"building {', '.join(guest.name for guest in RUST_GUESTS)} with {rust.version}")
    _run([rust.cargo, "fetch"], RUST, rust.environment)
    command = [rust.cargo, "build", "--release", "--target", TARGET, *rust.options]
    _run([*command, "--config", _remapping(rust)], RUST, rust.environment)
    return rust.version


def _remapping(rust: RustToolchain) -> str:
    """Keeps this machine's folders out of the guests, whose panics name source files. Adds to .cargo/config.toml."""
    registry = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"), "registry", "src")
    folders = dict.fromkeys(sorted(registry.glob("*")), "crates")
    folders[rust.sysroot / "lib" / "rustlib" / "src" / "rust"] = "rust"
    flags = [f"--remap-path-prefix={folder}={name}" for folder, name in folders.items()]
    return f"target.{TARGET}.rustflags={json.dumps(flags)}"


def _build_assemblyscript() -> str:
    node = _node()
    _run([node, "build.mjs"], ASSEMBLYSCRIPT)
    package = json.loads((ASSEMBLYSCRIPT / "package.json").read_text())
    return f"assemblyscript {package['devDependencies']['assemblyscript']}"


def _node() -> str:
    if (shutil.which("node") is None or shutil.which("npm") is None) and shutil.which("apt-get"):
        as_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
        _run([*as_root, "apt-get", "update"], GUESTS)
        _run([*as_root, "apt-get", "install", "-y", "--no-install-recommends", "nodejs", "npm"], GUESTS)
    mend = f"install Node {OLDEST_NODE} or newer with npm (https://nodejs.org)"
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        raise Failed(f"the AssemblyScript guests need node and npm, which are not installed: {mend}")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(version.lstrip("v").split(".")[0]) < OLDEST_NODE:
        raise Failed(f"the AssemblyScript guests cannot be built with Node {version}: {mend}")
    return node


# The record.


def _write_record(made_by: Mapping[str, str]) -> None:
    parts = [
        "# What the modules in capsules/ were built from: written by `make guests`, compared by `make check-guests`.\n"
    ]
    for guest in ALL:
        parts.append(
            f"\n[{guest.name}]\n"
            f"file = {json.dumps(guest.file.relative_to(ROOT).as_posix())}\n"
            f"sha256 = {json.dumps(_sha256(guest.file))}\n"
            f"sources = {json.dumps(_hash_of(guest.sources))}\n"
            f"toolchain = {json.dumps(made_by[guest.name])}\n"
        )
    RECORD.write_text("".join(parts))


def check() -> None:
    """Compare the record with the sources and the files.

    Raises:
        Failed: they differ; names every guest that does.
    """
    record = tomllib.loads(RECORD.read_text()) if RECORD.exists() else {}
    faults = [f"{guest.name}: {fault}" for guest in ALL if (fault := _fault(guest, record.get(guest.name)))]
    strange = record.keys() - {guest.name for guest in ALL}
    faults += [f"{name}: it is in {RECORD.name}, but there is no such guest" for name in sorted(strange)]
    if faults:
        raise Failed("\n".join([*faults, "run `make guests` and commit what it changes"]))
    print(f"{len(ALL)} guests are what their sources say")


def _fault(guest: Guest, entry: Mapping[str, str] | None) -> str | None:
    file = guest.file.relative_to(ROOT)
    if entry is None:
        return f"it is not in {RECORD.name}"
    if not guest.file.exists():
        return f"there is no {file}"
    if entry["sources"] != _hash_of(guest.sources):
        return f"its sources have changed since {file} was built"
    if entry["sha256"] != _sha256(guest.file):
        return f"{file} is not the file that was built"
    return None


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _hash_of(sources: Sequence[Path]) -> str:
    """One hash of all source files: of `<path>\\0<length>\\0<content>` for each, in the order of their paths."""
    digest = hashlib.sha256()
    files = {Path(os.path.relpath(file, GUESTS)).as_posix(): file for source in sources for file in _files(source)}
    for path in sorted(files):
        content = files[path].read_bytes()
        digest.update(f"{path}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _files(source: Path) -> Iterator[Path]:
    if source.is_file():
        yield source
    elif source.is_dir():
        for child in source.iterdir():
            if child.name not in LEFT_BEHIND:
                yield from _files(child)
    else:
        raise Failed(f"there is no {source.relative_to(ROOT)}, which a guest is built from")


# Lint and tests, for the machine that runs them: the code is the same, and no target needs to be installed.


def lint() -> None:
    """Formatting and clippy of the Rust guests, formatting of the AssemblyScript ones."""
    rust = rust_toolchain.find(linters=True)
    _run([rust.cargo, "fmt", "--check"], RUST, rust.environment)
    _run([rust.cargo, "clippy", "--workspace", "--lib", "--tests", "--", "-D", "warnings"], RUST, rust.environment)
    _run([_node(), "format.mjs", "--check"], ASSEMBLYSCRIPT)


def test() -> None:
    """The Rust guests' own tests."""
    rust = rust_toolchain.find()
    _run([rust.cargo, "test", "--workspace", "--lib"], RUST, rust.environment)


def _run(command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> None:
    told = " ".join(command[:4])
    try:
        subprocess.run(command, cwd=folder, env=environment, check=True)
    except subprocess.CalledProcessError as error:
        raise Failed(f"`{told} …` in {folder.relative_to(ROOT)} failed with exit code {error.returncode}") from None
    except OSError as error:
        raise Failed(f"`{told} …` cannot be run: {error.strerror}") from None


COMMANDS = {"build": build, "check": check, "lint": lint, "test": test}


def main(arguments: Sequence[str]) -> int:
    """Run the command that is named; returns the exit code."""
    if len(arguments) != 1 or arguments[0] not in COMMANDS:
        print(f"usage: build_guests.py {'|'.join(COMMANDS)}", file=sys.stderr)
        return 2
    try:
        COMMANDS[arguments[0]]()
    except (Failed, NoToolchain) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
