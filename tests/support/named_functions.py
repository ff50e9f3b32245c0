"""Host functions called by their WIT names, as a guest would."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from astrid_host.errors import HostError
from astrid_host.hostcalls.interface import HostFunction
from astrid_host.scheduler import Scheduler


class NamedFunctions:
    """The functions of some interfaces, on behalf of one guest.

    Args:
        made: the interfaces.
        scheduler: of the loop that the functions wait on.
        caller: the call that they are made in.
    """

    def __init__(self, made: Sequence[Any], scheduler: Scheduler, caller: Any) -> None:
        self.scheduler = scheduler
        self.call = caller
        self._made: dict[str, HostFunction] = {name: f for one in made for name, f in one.functions().items()}

    @property
    def names(self) -> list[str]:
        return sorted(self._made)

    def audited(self, name: str, *arguments: Any) -> str:
        """What the audit says that a call was about."""
        name_of = self._made[name].audited
        assert name_of is not None, name
        return name_of(*arguments)

    async def __call__(self, name: str, *arguments: Any) -> Any:
        function = self._made[name]
        value = function.run(self.call, *arguments)
        return await value if function.waits else value

    async def failure(self, name: str, *arguments: Any) -> HostError:
        """The error that it raises."""
        with pytest.raises(HostError) as caught:
            await self(name, *arguments)
        return caught.value

    async def case(self, name: str, *arguments: Any) -> str:
        """The case of the error that it raises."""
        return (await self.failure(name, *arguments)).case
