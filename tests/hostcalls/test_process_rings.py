"""What is kept of a child's output: the last so many bytes, for one reader who takes and any number who look."""

from __future__ import annotations

import pytest

from astrid_host.hostcalls.process.rings import Ring


def ring(*written: bytes, capacity: int = 8, waits: bool = False) -> Ring:
    made = Ring(capacity, waits)
    for data in written:
        made.add(data)
    return made


def test_taking_returns_what_is_new() -> None:
    made = ring(b"abc")
    assert made.take().text == "abc"
    assert made.take().text == ""
    made.add(b"d")
    assert made.take().text == "d"


def test_what_was_dropped_unread_is_told() -> None:
    made = ring(b"abcdefgh", b"ij")
    assert made.take().text == "[2 bytes were dropped]\ncdefghij"
    made.add(b"k")
    assert made.take().text == "k"


def test_a_character_that_is_not_complete_waits_for_its_end() -> None:
    made = ring("ä€".encode()[:4])
    assert made.take().text == "ä"
    made.add("€".encode()[2:])
    assert made.take().text == "€"


@pytest.mark.parametrize(
    ("data", "text"), [(b"a\xe2\x82", "a\ufffd"), (b"\xff\xfe", "\ufffd\ufffd"), (b"\x80", "\ufffd")]
)
def test_what_is_no_utf_8_is_replaced(data: bytes, text: str) -> None:
    made = ring(data)
    made.ended = True
    assert made.take().text == text


@pytest.mark.parametrize(
    "data", ["äö€".encode() * 40_000, b"\xe2\x82" * 100_000, b"\xc3(" * 70_000, b"a" + "€".encode() * 50_000]
)
def test_large_output_is_the_same_text_as_in_one_piece(data: bytes) -> None:
    made = ring(data, capacity=1 << 20)
    made.ended = True
    assert made.take().text == data.decode("utf-8", "replace")


def test_a_reader_with_a_cursor_takes_nothing_away() -> None:
    made = ring(b"abcdef")
    assert made.since(0, 4) == (b"abcd", 4, 0)
    assert made.since(4, 4) == (b"ef", 6, 0)
    assert made.since(6, 4) == (b"", 6, 0)
    assert made.take().text == "abcdef"


def test_a_reader_who_fell_behind_learns_how_far() -> None:
    made = ring(b"abcdefgh", b"ijk")
    assert made.since(1, 100) == (b"defghijk", 11, 2)


def test_a_child_that_waits_has_room_for_as_much_as_was_read() -> None:
    made = ring(b"abcdef", waits=True)
    assert made.room == 2
    made.since(0, 4)
    assert made.room == 6
    made.add(b"ghijkl")
    assert made.room == 0
    assert made.since(4, 100) == (b"efghijkl", 12, 0)


def test_what_a_child_that_waited_leaves_in_its_pipe_is_kept() -> None:
    made = ring(b"abcdefgh", waits=True)
    made.complete()
    made.add(b"i" * 100)
    assert made.take().text == "abcdefgh" + "i" * 100


def test_memory_is_bounded_whatever_is_written() -> None:
    made = ring(*[b"x" * 65_536] * 200, capacity=65_536)
    assert made.new_bytes == 65_536
    assert made.dropped == 199 * 65_536
