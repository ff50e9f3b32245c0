"""Doing what depends on other things after them, however long the chain: without recursion."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from typing import TypeVar

Key = TypeVar("Key")


def settle(
    start: Key,
    needs: Callable[[Key], Iterable[tuple[Key, int]]],
    done: Container[Key],
    make: Callable[[Key], None],
    circle: Callable[[Key, Key, int], Exception],
) -> None:
    """Make one thing, and before it whatever it needs that is not done.

    Args:
        needs: what a thing needs, each with the offset where it says so.
        done: what is made; `make` adds to it.
        circle: the error for a thing that needs one which waits for it: (who, whom, where).

    Raises:
        Exception: what `circle` returns, and whatever `needs` and `make` raise.
    """
    path: dict[Key, Iterator[tuple[Key, int]]] = {}
    if start not in done:
        path[start] = iter(needs(start))
    while path:
        key = next(reversed(path))
        for need, at in path[key]:
            if need in path:
                raise circle(key, need, at)
            if need not in done:
                path[need] = iter(needs(need))
                break
        else:
            make(key)
            del path[key]
