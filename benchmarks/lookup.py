"""Finding the handlers of a topic among many patterns: the dispatcher's index, without the routes that it remembers.

Every topic has three matches, however many patterns there are: one of its own and two with wildcards. The others miss: half
have no wildcard, and those that have one share all of a topic's first segments, so that the search comes as far as it
can. The topics that are looked up are spread over all that there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from astrid_host.topics import InterceptorIndex, interceptor_matches
from benchmarks.measure import Spread, over_rounds, sample, spread

SIZES = (10, 1000, 100_000)
GENERAL = ("bench.v1.ask.*", "bench.*.ask.*")
MISSING = (
    "bench.*.ask.miss{}",
    "bench.v1.*.miss{}",
    "*.v1.ask.miss{}",
    "bench.v1.ask.topic{}.*",
)
TOPICS = 512
PASSES = 20
ROUNDS = 9


def run() -> dict[str, Spread]:
    """Measure with each number of patterns.

    Returns:
        By that number, `p50_us` of one look-up.

    Raises:
        RuntimeError: a look-up found something else than the matcher does.
    """
    rounds: dict[int, list[Spread]] = {size: [] for size in SIZES}
    passes = {size: _pass(size) for size in SIZES}
    for _ in range(ROUNDS):
        for size, (find_all, count) in passes.items():
            rounds[size].append({"p50_us": spread(sample(find_all, 0.0, PASSES))["p50_us"] / count})
    return {str(size): over_rounds(each) for size, each in rounds.items()}


def _pass(size: int) -> tuple[Callable[[], None], int]:
    """What looks up one topic after the other, and how many look-ups that is: about `TOPICS`, whatever the size."""
    index: InterceptorIndex[str] = InterceptorIndex()
    patterns = list(_patterns(size))
    for pattern in patterns:
        index.insert(pattern, pattern)
    own = [pattern for pattern in patterns if "*" not in pattern]
    topics = own[:: max(len(own) // TOPICS, 1)]
    for topic in topics[:: max(len(topics) // 4, 1)]:
        expected = [pattern for pattern in patterns if interceptor_matches(topic, pattern)]
        if index.find(topic) != expected or len(expected) != 1 + len(GENERAL):
            raise RuntimeError(f"the index finds {index.find(topic)} for {topic}, the matcher {expected}")
    topics *= max(TOPICS // len(topics), 1)
    find = index.find

    def find_all() -> None:
        for topic in topics:
            find(topic)

    return find_all, len(topics)


def _patterns(size: int) -> Iterator[str]:
    """So many patterns: the general ones, then one exact and one that misses by turns."""
    yield from GENERAL
    for number in range(size - len(GENERAL)):
        turn = number // 2
        yield MISSING[turn % len(MISSING)].format(turn) if number % 2 else f"bench.v1.ask.topic{turn}"
