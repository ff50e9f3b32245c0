"""Where what comes with the host is: in the installed package, or in the checkout that an editable install reads."""

from __future__ import annotations

from pathlib import Path

APPLICATION = "astrid-host"  # the name of this user's data and cache folders
_PACKAGE = Path(__file__).resolve().parent


def wit_folder() -> Path:
    """The WIT packages of the host's functions."""
    return _folder("wit")


def capsules_folder() -> Path:
    """The capsules that come with the host."""
    return _folder("capsules")


def contracts_files() -> list[Path]:
    """The topic contracts, each beside the capsule whose convention it is."""
    return sorted(_folder("capsules").glob("*/contracts.toml"))


def _folder(name: str) -> Path:
    installed = _PACKAGE / "_bundled" / name
    return installed if installed.is_dir() else _PACKAGE.parent / name
