"""One interceptor call with one publish: our engine, `wasmtime.component` and Extism's Python SDK, taking turns.

All do the same work: the caller hands over an action and a payload as bytes, the guest publishes the payload on the topic
that is its action, the host function gets both as text and counts, and the caller gets the guest's word back as text. Each
peer keeps one instance. What was published is compared after every turn.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from typing import Protocol

from benchmarks.measure import Spread, over_rounds, sample, spread

SIZES = (64, 1024, 16384)
TOPIC = "bench.v1.relayed"
ROUNDS = 11
TURN_S = 0.2
LEAST_CALLS = 20


class Published:
    """What the host function does in every peer: count, and keep the last."""

    __slots__ = ("count", "last")

    def __init__(self) -> None:
        self.count = 0
        self.last: tuple[str, str] | None = None

    def take(self, topic: str, payload: str) -> None:
        self.count += 1
        self.last = (topic, payload)


class Peer(Protocol):
    """One way to call a guest."""

    published: Published

    def call(self, payload: bytes) -> str:
        """Let the relay publish `payload` on `TOPIC`; the word that it answers."""
        ...

    def turn(self) -> AbstractContextManager[object]:
        """Entered while calls are timed."""
        ...


def run() -> dict[str, dict[str, Spread]]:
    """Measure all peers.

    Returns:
        By peer and by payload size in bytes, `p50_us` and `p99_us`.

    Raises:
        RuntimeError: a peer published something else than it was handed.
        ImportError: Extism's SDK is not installed.
    """
    from benchmarks.component_peer import ComponentPeer
    from benchmarks.engine_peer import EnginePeer
    from benchmarks.extism_peer import ExtismPeer

    with ExitStack() as stack:
        ours = stack.enter_context(EnginePeer())
        peers: dict[str, Peer] = {"ours": ours, "component": ComponentPeer(), "extism": ExtismPeer()}
        rounds: dict[tuple[str, int], list[Spread]] = {(name, size): [] for name in peers for size in SIZES}
        for size in SIZES:
            for name, peer in peers.items():
                _turn(name, peer, size, 0.0)
        for _ in range(ROUNDS):
            for size in SIZES:
                for name, peer in peers.items():
                    rounds[name, size].append(spread(_turn(name, peer, size, TURN_S)))
    return {name: {str(size): over_rounds(rounds[name, size]) for size in SIZES} for name in peers}


def _turn(name: str, peer: Peer, size: int, seconds: float) -> list[int]:
    payload = b"x" * size
    before = peer.published.count
    with peer.turn():
        taken = sample(lambda: peer.call(payload), seconds, LEAST_CALLS)
    if peer.call(payload) != "continue" or peer.published.last != (TOPIC, payload.decode()):
        raise RuntimeError(f"{name} did not relay {size} bytes: {str(peer.published.last)[:80]}")
    if peer.published.count - before != len(taken) + 1:
        raise RuntimeError(f"{name} published {peer.published.count - before} times in {len(taken) + 1} calls")
    return taken
