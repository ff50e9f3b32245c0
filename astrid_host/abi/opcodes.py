"""Walking over the instructions of a function, to find what it calls."""

from __future__ import annotations

from astrid_host.abi.binary import Reader

_NONE, _INDEX, _TWO, _MEMORY, _SIGNED = "none", "index", "two", "memory", "signed"


class UnknownInstruction(Exception):
    """An instruction whose length is not known."""


def _table() -> dict[int, str]:
    table = dict.fromkeys((0x00, 0x01, 0x05, 0x0B, 0x0F, 0x1A, 0x1B, 0xD1), _NONE)
    table |= dict.fromkeys((0x02, 0x03, 0x04, 0x41, 0x42, 0xD0), _SIGNED)  # block types are signed numbers too
    table |= dict.fromkeys((0x0C, 0x0D, 0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x3F, 0x40), _INDEX)
    table |= dict.fromkeys(range(0x28, 0x3F), _MEMORY)
    table |= dict.fromkeys(range(0x45, 0xC5), _NONE)
    return table


_OPCODES = _table()
# Behind the prefix 0xFC: how many indices follow.
_BULK = dict.fromkeys(range(8), 0) | {8: 2, 9: 1, 10: 2, 11: 1, 12: 2, 13: 1, 14: 2, 15: 1, 16: 1, 17: 1}


def called(reader: Reader) -> tuple[list[int], bool]:
    """What a function's body calls: functions by index, and whether it calls through a table or reference.

    Raises:
        UnknownInstruction: the body has one whose length is not known.
        ModuleRefused: it is malformed.
    """
    for _ in range(reader.count()):
        reader.number()
        reader.skip_signed()
    direct: list[int] = []
    indirect = False
    while reader.at < reader.end:
        opcode = reader.byte()
        if opcode in (0x10, 0x12):
            direct.append(reader.number())
        elif opcode in (0x11, 0x13):
            reader.number()
            reader.number()
            indirect = True
        elif opcode == 0xD2:
            direct.append(reader.number())  # a reference to it may be called
        else:
            _skip(reader, opcode)
    return direct, indirect


def _skip(reader: Reader, opcode: int) -> None:
    shape = _OPCODES.get(opcode)
    if shape == _INDEX:
        reader.number()
    elif shape == _MEMORY:
        _skip_memory(reader)
    elif shape == _SIGNED:
        reader.skip_signed()
    elif opcode == 0x43:
        reader.skip(4)
    elif opcode == 0x44:
        reader.skip(8)
    elif opcode == 0x0E:
        for _ in range(reader.count() + 1):
            reader.number()
    elif opcode == 0x1C:
        for _ in range(reader.count()):
            reader.skip_signed()
    elif opcode == 0xFC:
        _skip_bulk(reader)
    elif opcode == 0xFD:
        _skip_vector(reader)
    elif shape != _NONE:
        raise UnknownInstruction(f"{opcode:#x}")


def _skip_memory(reader: Reader) -> None:
    reader.number()
    reader.number(64)


def _skip_bulk(reader: Reader) -> None:
    number = reader.number()
    if number not in _BULK:
        raise UnknownInstruction(f"0xfc {number}")
    for _ in range(_BULK[number]):
        reader.number()


def _skip_vector(reader: Reader) -> None:
    number = reader.number()
    if number <= 11 or 92 <= number <= 93:
        _skip_memory(reader)
    elif number in (12, 13):
        reader.skip(16)
    elif 21 <= number <= 34:
        reader.skip(1)
    elif 84 <= number <= 91:
        _skip_memory(reader)
        reader.skip(1)
