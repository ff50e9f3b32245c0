"""Which host function a guest's import is: WIT says its shape, a host function class says what it does.

Interfaces are parsed when the first module imports them. What an interface declares and no class provides answers with
its nearest typed refusal, so a capsule that imports it loads and learns at the call that it is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from astrid_host.abi import HOST_BYTES
from astrid_host.engine import Import
from astrid_host.hostcalls.auditor import Auditor
from astrid_host.hostcalls.denied import Denied
from astrid_host.hostcalls.interface import HostFunction, Interface
from astrid_host.scheduler import Tasks
from astrid_host.wit import Packages
from astrid_host.wit.types import Interface as WitInterface
from astrid_host.wit.types import Resource

DROP = "[resource-drop]"
# Bytes that the arguments of one call may take in the host, where a function does not say so itself: texts and bytes as they
# are, elements of lists as the objects that they become.
TAKES = {"http": 16 << 20, "net": 12 << 20, "io": 12 << 20, "process": 48 << 20}
OTHERS_TAKE = 1 << 20


class HostImports:
    """The host functions of one host.

    Args:
        packages: the WIT packages.
        tasks: runs host functions that are `async def`.
        auditor: makes rows of calls; None for a host that keeps none.
        call_bytes: the most that any of them may take.
    """

    def __init__(
        self, packages: Packages, tasks: Tasks, auditor: Auditor | None = None, call_bytes: int = HOST_BYTES
    ) -> None:
        self._call_bytes = call_bytes
        self._packages = packages
        self._tasks = tasks
        self._auditor = auditor
        self._offered: dict[str, Callable[[], Iterable[Interface]]] = {}
        self._provided: dict[str, dict[str, HostFunction]] = {}

    def provide(self, interfaces: Iterable[Interface]) -> None:
        """Host functions by interface; a later one wins over an earlier one."""
        for interface in interfaces:
            functions = interface.functions()
            for name in interface.wit:
                self._provided.setdefault(name, {}).update(functions)

    def offer(self, package: str, make: Callable[[], Iterable[Interface]]) -> None:
        """Host functions of a package such as `fs`, made when the first module imports one of its interfaces."""
        self._offered[package] = make

    def find(self, module: str, name: str) -> Import | None:
        interface = self._packages.interface(module)
        if interface is None:
            return None
        if name.startswith(DROP):
            resource = interface.types.get(name.removeprefix(DROP))
            return Import(resource, _drop, waits=False) if isinstance(resource, Resource) else None
        declared = interface.functions.get(name)
        if declared is None:
            return None
        package = module.partition(":")[2].partition("/")[0]
        if package in self._offered:
            self.provide(self._offered.pop(package)())
        provided = self._provided.get(module, {}).get(name)
        function = provided or Denied(interface).functions()[name]
        takes = min(function.takes or TAKES.get(package, OTHERS_TAKE), self._call_bytes)
        if self._auditor is not None and provided is not None:
            function = self._auditor.audited(module, function)
        if function.waits:
            return Import(declared, self._tasks.waiting(function.run), True, takes)
        return Import(declared, function.run, function.suspends, takes)

    def known(self) -> Iterable[tuple[str, str]]:
        for module in self._packages.interfaces():
            interface = self._packages.interface(module)
            if not isinstance(interface, WitInterface):
                raise TypeError(f"{module} is listed and is no interface")
            for name in interface.functions:
                yield module, name
            for name, declared in interface.types.items():
                if isinstance(declared, Resource) and declared.interface == module:
                    yield module, f"{DROP}{name}"


def _drop(*_arguments: object) -> None:
    """Dropping a handle is done by the handle table, which closes what it held."""
