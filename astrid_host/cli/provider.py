"""What the bundled provider's capsule is configured with in one run: by options, and by the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from astrid_host.cli.state import state_folder

PROVIDER = "openai-compat"
VARIABLE = "OPENAI_API_KEY"
KEY = f"{PROVIDER}.api_key"


def provider_config(
    state_dir: Path | None, principal: str | None, provider_url: str | None = None, model: str | None = None
) -> Mapping[str, Mapping[str, str]]:
    """What the provider's capsule is told in a host that is booted, over what is stored.

    Args:
        state_dir: as it was given, of the host.
        principal: whose key comes before that of the environment; None for anybody's.
        provider_url: where the provider is.
        model: which model answers.

    Returns:
        Rows by capsule; none where there is nothing to tell.

    Raises:
        StoreError: what is stored cannot be read.
    """
    given = {"base_url": provider_url, "model": model, "api_key": key_of_environment(state_dir, principal)}
    row = {key: value for key, value in given.items() if value}
    return {PROVIDER: row} if row else {}


def key_of_environment(state_dir: Path | None, principal: str | None) -> str | None:
    """The provider's key in the environment; None where there is none, or one was set for the capsule.

    Raises:
        StoreError: what is stored cannot be read.
    """
    key = os.environ.get(VARIABLE)
    if not key:
        return None
    from astrid_host.stores import Stores

    with closing(Stores(state_folder(state_dir))) as stores:
        secrets = stores.secrets.all()
    whose = {secret.principal for secret in secrets if f"{secret.capsule}.{secret.key}" == KEY}
    return None if (whose if principal is None else whose & {"", principal}) else key
