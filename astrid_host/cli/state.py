"""The state folder of a command."""

from __future__ import annotations

from pathlib import Path


def state_folder(given: Path | None) -> Path:
    """The folder that was given, or this user's data folder."""
    if given is not None:
        return given
    import platformdirs

    from astrid_host.bundled import APPLICATION

    return Path(platformdirs.user_data_dir(APPLICATION))
