"""What a child wrote to one stream: the last so many bytes of it.

Places in it are counted from the child's first byte. There is one reader who takes what is new, and there are any number of
others, each with a cursor of its own. Nothing here locks.
"""

from __future__ import annotations

import codecs
from typing import NamedTuple

DECODED_BYTES = 64 << 10  # at once: decoding lets no other thread run
PIPE_BYTES = 1 << 20  # what a pipe holds at most


class Taken(NamedTuple):
    """What was taken: how many bytes were dropped before it, and the bytes."""

    lost: int
    data: bytes

    @property
    def text(self) -> str:
        """As text: bytes that are no UTF-8 are replaced, what was dropped is told in a line at the beginning.

        It takes up to a second for the largest rings, so no lock is to be held.
        """
        notice = f"[{self.lost} bytes were dropped]\n" if self.lost else ""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        pieces = range(0, len(self.data), DECODED_BYTES)
        texts = [decoder.decode(self.data[at : at + DECODED_BYTES]) for at in pieces]
        return "".join([notice, *texts, decoder.decode(b"", True)])


class Ring:
    """One stream of a child.

    Args:
        capacity: how many bytes are kept.
        waits: what nobody has read yet is never dropped: the child waits instead.
    """

    __slots__ = ("_capacity", "_data", "_read", "_waits", "dropped", "ended", "taken")

    def __init__(self, capacity: int, waits: bool) -> None:
        self._capacity = capacity
        self._waits = waits
        self._data = bytearray()
        self._read = 0  # how far the reader who is furthest has come
        self.dropped = 0  # where the data begins
        self.taken = 0  # what was taken with `take`
        self.ended = False

    @property
    def end(self) -> int:
        """How many bytes the child wrote so far."""
        return self.dropped + len(self._data)

    @property
    def new_bytes(self) -> int:
        """How many of them are kept and were not taken yet."""
        return self.end - max(self.taken, self.dropped)

    @property
    def room(self) -> int:
        """How many bytes may be added now."""
        return self._capacity - (self.end - max(self._read, self.dropped)) if self._waits else self._capacity

    def complete(self) -> None:
        """The child has ended: there is room for what is still in its pipe."""
        if self._waits:
            self._waits = False
            self._capacity += PIPE_BYTES

    def add(self, data: bytes) -> None:
        """Keep what the child wrote; the oldest bytes go."""
        self._data += data
        excess = len(self._data) - self._capacity
        if excess > 0:
            del self._data[:excess]
            self.dropped += excess

    def take(self) -> Taken:
        """What is new. The beginning of a character whose end may still come is left for the next time."""
        lost = max(self.dropped - self.taken, 0)
        with memoryview(self._data) as kept:
            new = bytes(kept[max(self.taken - self.dropped, 0) :])
        if not self.ended:
            new = new[: len(new) - _unfinished(new)]
        self.taken = max(self.taken, self.dropped) + len(new)
        self._read = max(self._read, self.taken)
        return Taken(lost, new)

    def since(self, place: int, most: int) -> tuple[bytes, int, int]:
        """What was written from a place on.

        Returns:
            `most` bytes at most; the place after them; how many bytes before them are lost.
        """
        start = max(place, self.dropped)
        with memoryview(self._data) as kept:
            data = bytes(kept[start - self.dropped : start - self.dropped + most])
        after = start + len(data)
        self._read = max(self._read, after)
        return data, after, max(start - place, 0)


def _unfinished(data: bytes) -> int:
    """How many bytes at the end begin a character of UTF-8 without ending it."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        length = 2 if byte & 0xE0 == 0xC0 else 3 if byte & 0xF0 == 0xE0 else 4 if byte & 0xF8 == 0xF0 else 1
        return back if length > back else 0
    return 0
