"""Walking over the instructions of a function: what it calls, and whether it can do more than run to its end.

Known are all instructions that the engine allows in a guest, and those for threads. Of others the length is not known.
"""

from __future__ import annotations

import msgspec

from astrid_host.abi.binary import Reader

_NONE, _INDEX, _MEMORY, _SIGNED = "none", "index", "memory", "signed"
_UNREACHABLE, _LOOP = 0x00, 0x03
_BRANCHES = (0x04, 0x0C, 0x0D, 0x0E, 0x0F)  # if, br, br_if, br_table, return


class UnknownInstruction(Exception):
    """An instruction whose length is not known."""


class Survey(msgspec.Struct):
    """What a function's body does.

    `calls` are the functions that it calls by index or takes references of; `first` those of them that are called before it
    can go one way or another; `indirect` says that it calls through a table or a reference, `references` that it takes
    a reference; `stays` that it may not end at once: it has a loop, or an instruction that always traps.
    """

    calls: list[int] = []
    first: list[int] = []
    indirect: bool = False
    references: bool = False
    stays: bool = False


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


def survey(reader: Reader) -> Survey:
    """Walk over one function's body: its locals and its instructions.

    Raises:
        UnknownInstruction: the body has one whose length is not known.
        ModuleRefused: it is malformed.
    """
    for _ in range(reader.count()):
        reader.number()
        reader.skip_signed()
    found, straight = Survey(), True
    while reader.at < reader.end:
        opcode = reader.byte()
        if opcode in (0x10, 0x12):  # call, return_call
            index = reader.number()
            found.calls.append(index)
            if straight:
                found.first.append(index)
        elif opcode in (0x11, 0x13, 0x14, 0x15):  # call_indirect and call_ref, and the same as tail calls
            reader.number()
            if opcode < 0x14:
                reader.number()
            found.indirect = True
        elif opcode == 0xD2:  # ref.func
            found.calls.append(reader.number())
            found.references = True
        else:
            found.stays = found.stays or opcode in (_UNREACHABLE, _LOOP)
            straight = straight and opcode != _UNREACHABLE and opcode not in _BRANCHES
            _skip(reader, opcode)
    return found


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
    elif opcode == 0xFE:
        _skip_atomic(reader)
    elif shape != _NONE:
        raise UnknownInstruction(f"{opcode:#x}")


def _skip_memory(reader: Reader) -> None:
    if reader.number() & 0x40:  # it says which memory
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


def _skip_atomic(reader: Reader) -> None:
    number = reader.number()
    if number == 3:
        reader.skip(1)
    elif number <= 2 or 0x10 <= number <= 0x4E:
        _skip_memory(reader)
    else:
        raise UnknownInstruction(f"0xfe {number}")
