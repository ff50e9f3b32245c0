"""Which encoding of strings a file was built for: only UTF-8 is passed here, so any other is refused when the file is loaded.

A component says it in the options of its `canon lift` and `canon lower`. A core module that is meant to become a component
says it in the metadata that its bindings left in a custom section. Without this check a guest built for UTF-16 would load, and
fail at its first call, or read texts that nobody wrote. What is malformed is a `ModuleRefused`.
"""

from __future__ import annotations

from astrid_host.abi.binary import COMPONENT, CORE, MAGIC, Reader, sections
from astrid_host.errors import ModuleRefused

DEPTH = 8
METADATA, ENCODING = "component-type", "wit-component-encoding"
_CUSTOM, _CORE_MODULE, _COMPONENT, _CANON = 0, 1, 4, 8
_OTHERS = {1: "utf16", 2: "latin1+utf16"}
_LIFT, _LOWER = 0, 1
_OF_A_RESOURCE = (2, 3, 4, 7)
_WITH_INDEX = (3, 4, 5, 7, 8)  # options that name a memory, a function or a type


def check_encodings(wasm: bytes) -> None:
    """Refuse a file that passes strings in another encoding than UTF-8.

    Args:
        wasm: a core module or a component, in binary form.

    Raises:
        ModuleRefused: it does, or is malformed.
    """
    _check(wasm, 0, len(wasm), 0)


def _check(data: bytes, begin: int, end: int, depth: int) -> None:
    head = data[begin : begin + 8]
    if depth > DEPTH or head not in (MAGIC + CORE, MAGIC + COMPONENT):
        return
    component = head == MAGIC + COMPONENT
    for number, reader in sections(data, begin + 8, end):
        if number == _CUSTOM:
            name = reader.name()
            if name == ENCODING and depth:
                _metadata(reader)
            elif name.startswith(METADATA):
                _check(data, reader.at, reader.end, depth + 1)
        elif component and number in (_CORE_MODULE, _COMPONENT):
            _check(data, reader.at, reader.end, depth + 1)
        elif component and number == _CANON:
            _canons(reader)


def _metadata(reader: Reader) -> None:
    """The version of the metadata, then the encoding, as wit-component writes them."""
    reader.byte()
    _accept(reader.byte())


def _canons(reader: Reader) -> None:
    for _ in range(reader.count()):
        kind = reader.byte()
        if kind in _OF_A_RESOURCE:
            reader.number()
            continue
        if kind not in (_LIFT, _LOWER):
            return  # of later versions: a module that needs one imports it, and is refused for that
        reader.byte()
        reader.number()
        for _ in range(reader.count()):
            option = reader.byte()
            if option in _WITH_INDEX:
                reader.number()
            _accept(option)
        if kind == _LIFT:
            reader.number()


def _accept(encoding: int) -> None:
    other = _OTHERS.get(encoding)
    if other is not None:
        raise ModuleRefused(
            f"it passes strings as {other} (string-encoding={other}): expected UTF-8, the only encoding that this host "
            "passes; build the capsule with string-encoding=utf8, which is what tools do unless they are told otherwise"
        )
