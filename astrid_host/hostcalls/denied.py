"""Host functions that a host does not have: they link, and refuse in their interface's own words.

So a capsule that imports more than it uses loads, and one that uses it gets an error that it can handle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from astrid_host.errors import GuestFault, HostError
from astrid_host.hostcalls.interface import HostFunction
from astrid_host.wit.types import Enum, Function, Interface, ResultOf, Variant

# The first that an interface's `error-code` has is the one that is nearest to "not here".
NEAREST = ("capability-denied", "not-in-lifecycle", "store-unavailable", "invalid-input", "closed")


class Denied:
    """Refusals for every function of a WIT interface.

    Args:
        interface: as it was parsed.
    """

    def __init__(self, interface: Interface) -> None:
        self.wit = (interface.id,)
        self._interface = interface

    def functions(self) -> Mapping[str, HostFunction]:
        """The host functions by core name.

        Each raises HostError with the nearest case of its error type; one whose result has no room for an error raises
        GuestFault, which ends the call (such functions belong to resources that nobody can have a handle of).
        """
        found = {}
        for name, function in self._interface.functions.items():
            found[name] = HostFunction(name, _refusal(self._interface.id, function), False)
        return found


def _refusal(interface: str, function: Function) -> Callable[..., NoReturn]:
    what = f"this host does not have {function.core_name} of {interface}"
    refusal = nearest(function)

    def refuse(*_: Any) -> NoReturn:
        if refusal is None:
            raise GuestFault(f"{what}, and its result has no room for an error")
        case, payload = refusal
        raise HostError(case, payload, detail=what)

    return refuse


def nearest(function: Function) -> tuple[str, str | None] | None:
    """The case, and the text that it carries, by which a function says that it is not there; None when it cannot."""
    errors = function.result.err if isinstance(function.result, ResultOf) else None
    if isinstance(errors, Enum):
        plain = errors.cases
    elif isinstance(errors, Variant):
        plain = tuple(case.name for case in errors.cases if case.type is None)
    else:
        return None
    case = next((case for case in NEAREST if case in plain), None)
    if case is not None:
        return case, None
    if isinstance(errors, Variant) and any(case.name == "unknown" for case in errors.cases):
        return "unknown", "this host does not have it"
    return (plain[0], None) if plain else None
