"""Calls of a guest, made once more without it: the same host functions, the same arguments, another host."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from probe_guest import Answer, Called

from astrid_host.errors import HostError
from astrid_host.hostcalls import HostFunction
from astrid_host.wit import types as wit


class DirectCalls:
    """What a guest called of one host, for the functions of another.

    Handles and ids that the guest was given are replaced by those that the same call gives here.

    Args:
        functions: by interface and name.
        caller: the call that they are made in.
    """

    def __init__(self, functions: Mapping[tuple[str, str], HostFunction], caller: Any) -> None:
        self._functions = functions
        self._caller = caller
        self._handles: dict[int, Any] = {}
        self._texts: dict[str, str] = {}

    async def again(self, called: Called) -> Answer:
        """Make a call once more."""
        function = self._functions[called.module, called.name]
        given = zip(called.declared.params, called.arguments, strict=True)
        arguments = [self._ours(param.type, value) for param, value in given]
        try:
            value = function.run(self._caller, *arguments)
            if inspect.iscoroutine(value):
                value = await value
        except HostError as error:
            return Answer.of(error)
        if called.answer.good:
            self._learn(called.answer.value, value)
        return Answer(True, value)

    def theirs(self, text: str) -> str:
        """A text with the guest's ids in place of ours."""
        for given, ours in self._texts.items():
            text = text.replace(ours, given)
        return text

    def _learn(self, given: Any, ours: Any) -> None:
        if isinstance(given, str):
            self._texts[given] = ours
        elif hasattr(given, "user_id"):
            self._texts[given.user_id] = ours.user_id
        elif hasattr(given, "close"):
            self._handles[id(given)] = ours

    def _ours(self, kind: wit.Type, value: Any) -> Any:
        match kind:
            case wit.Borrow() | wit.Own():
                return self._handles[id(value)]
            case wit.Primitive(name="string"):
                return self._texts.get(value, value)
            case wit.Record():
                names = [(field.name.replace("-", "_"), field.type) for field in kind.fields]
                return SimpleNamespace(**{name: self._ours(of, getattr(value, name)) for name, of in names})
            case _:
                return value

    def close(self) -> None:
        """Close what is held."""
        for held in self._handles.values():
            held.close()
