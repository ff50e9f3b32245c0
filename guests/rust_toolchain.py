"""Which Rust builds the guests: found where there is one, installed where there is none.

Two ways are tried, in this order; the variable `ASTRID_RUST` (`rustup` or `debian`) leaves only one of them.

- rustup: its compiler with the target's ready-made standard library, which `rustup target add` downloads if need be.
- debian: the packages of `DEBIAN_PACKAGES`, installed with apt-get if need be. They have no standard library for the
  target, so it is built from its source together with the guests.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TARGET = "wasm32-unknown-unknown"
OLDEST = (1, 94)  # what astrid-sdk needs
# rust-web-llvm has only the link by which rustc finds lld-22.
DEBIAN_PACKAGES = ("rustc-web", "cargo-web", "rust-web-src", "rust-web-llvm", "lld-22")
DEBIAN_LINTERS = ("rust-web-clippy", "rustfmt-web")
RUSTUP_TIMEOUT_S = 180
APT_TIMEOUT_S = 1200


class NoToolchain(Exception):
    """There is no Rust here that can build the guests; says what was tried and what to do."""


@dataclass(frozen=True)
class RustToolchain:
    """A Rust that can build for the target.

    Attributes:
        cargo: the program.
        environment: what to run it with.
        options: what `cargo build` needs to be told.
        version: as `rustc --version` tells it.
        sysroot: where its libraries are.
    """

    cargo: str
    environment: Mapping[str, str]
    options: tuple[str, ...]
    version: str
    sysroot: Path


def find(linters: bool = False) -> RustToolchain:
    """A Rust that can build for the target; installs what it lacks.

    Args:
        linters: with `cargo clippy` and `cargo fmt`.

    Raises:
        NoToolchain: neither way led to one.
    """
    ways = {"rustup": _rustup, "debian": _debian}
    wanted = os.environ.get("ASTRID_RUST")
    if wanted is not None and wanted not in ways:
        raise NoToolchain(f"ASTRID_RUST is {wanted!r}; it must be rustup or debian, or not be set")
    refusals = []
    for name, way in ways.items():
        if wanted in (None, name):
            try:
                return way(linters)
            except NoToolchain as error:
                refusals.append(f"- {name}: {error}")
    tried = "\n".join(refusals)
    raise NoToolchain(
        f"no Rust was found that builds for {TARGET}:\n{tried}\n"
        f"Install Rust {_text(OLDEST)} or newer from https://rustup.rs, then: rustup target add {TARGET}"
    )


def _rustup(linters: bool) -> RustToolchain:
    folder = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"), "bin")
    path = f"{folder}{os.pathsep}{os.environ.get('PATH', '')}"
    rustup = shutil.which("rustup", path=path)
    if rustup is None:
        raise NoToolchain("rustup is not installed")
    environment = _environment(PATH=f"{Path(rustup).parent}{os.pathsep}{path}")
    version = _checked_version("rustc", environment, "update it with: rustup update stable")
    sysroot = Path(_output(["rustc", "--print", "sysroot"], environment))
    if not (sysroot / "lib" / "rustlib" / TARGET / "lib").is_dir():
        _run([rustup, "target", "add", TARGET], environment, RUSTUP_TIMEOUT_S)
    if linters and not all((sysroot / "bin" / name).exists() for name in ("cargo-clippy", "cargo-fmt")):
        _run([rustup, "component", "add", "clippy", "rustfmt"], environment, RUSTUP_TIMEOUT_S)
    return RustToolchain("cargo", environment, (), version, sysroot)


def _debian(linters: bool) -> RustToolchain:
    # rustup's programs must not answer in place of Debian's.
    environment = _environment(PATH="/usr/sbin:/usr/bin:/sbin:/bin", RUSTC_BOOTSTRAP="1")
    rustc, cargo = "/usr/bin/rustc", "/usr/bin/cargo"
    sources = "/usr/lib/rustlib/src/rust/library/std"
    needed, packages = [rustc, cargo, sources, "/usr/bin/rust-lld"], [*DEBIAN_PACKAGES]
    if linters:
        needed += ["/usr/bin/cargo-clippy", "/usr/bin/cargo-fmt"]
        packages += DEBIAN_LINTERS
    if not all(map(os.path.exists, needed)):
        _apt_install(packages, environment)
    if missing := [path for path in needed if not os.path.exists(path)]:
        raise NoToolchain(f"{', '.join(packages)} are installed, but there is no {', '.join(missing)}")
    version = _checked_version(rustc, environment, f"install {', '.join(packages)}")
    sysroot = Path(_output([rustc, "--print", "sysroot"], environment))
    return RustToolchain(cargo, environment, ("-Z", "build-std=std,panic_abort"), version, sysroot)


def _environment(**changed: str) -> dict[str, str]:
    """This process's environment without flags for the compiler, which would replace those of .cargo/config.toml."""
    return {name: text for name, text in os.environ.items() if not name.endswith("RUSTFLAGS")} | changed


def _apt_install(packages: Sequence[str], environment: Mapping[str, str]) -> None:
    if shutil.which("apt-get", path=environment["PATH"]) is None:
        raise NoToolchain("this is no Debian: there is no apt-get")
    as_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    quiet = {**environment, "DEBIAN_FRONTEND": "noninteractive"}
    _run([*as_root, "apt-get", "update"], quiet, APT_TIMEOUT_S)
    _run([*as_root, "apt-get", "install", "-y", "--no-install-recommends", *packages], quiet, APT_TIMEOUT_S)


def _checked_version(rustc: str, environment: Mapping[str, str], mend: str) -> str:
    version = _output([rustc, "--version"], environment)
    numbers = re.match(r"rustc (\d+)\.(\d+)", version)
    if numbers is None:
        raise NoToolchain(f"{rustc} --version says {version!r}")
    if (int(numbers[1]), int(numbers[2])) < OLDEST:
        raise NoToolchain(f"{rustc} is {version!r}, and {_text(OLDEST)} is needed: {mend}")
    return version


def _text(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def _output(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """What a program prints. Asking rustup's `rustc` may make it download its toolchain first."""
    return _run(command, environment, RUSTUP_TIMEOUT_S, stdout=subprocess.PIPE).strip()


def _run(command: Sequence[str], environment: Mapping[str, str], timeout: float, stdout: int | None = None) -> str:
    told = " ".join(command)
    try:
        done = subprocess.run(command, env=environment, timeout=timeout, stdout=stdout, text=True, check=True)
    except subprocess.TimeoutExpired:
        raise NoToolchain(f"`{told}` did not end within {timeout:.0f} s") from None
    except subprocess.CalledProcessError as error:
        raise NoToolchain(f"`{told}` failed with exit code {error.returncode}") from None
    except OSError as error:
        raise NoToolchain(f"`{told}` cannot be run: {error.strerror}") from None
    return done.stdout or ""
