"""What travels on the bus."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from astrid_host.bus.rates import Credit
    from astrid_host.bus.reports import Failure


class Event:
    """One published event, and the account of what its handlers made of it.

    `payload` is what a guest receives, as JSON bytes; `data` the same, decoded: a struct for a known tag, else the plain JSON
    value. As objects a payload may take 25 times its bytes, so they are kept only while the event is handed out: after that
    `form` decodes it for each who asks. `principal` is None for events that nobody caused. `seq` counts all events of a host
    from 1. `time` is in seconds since 1970. `entering` tells events that come from outside (the host's API, timers, run loops)
    from those that follow from another's handling. `depth` is how many events led to it, and `root` when the first of them was
    published, in seconds of `time.monotonic`. `asks` says that its publisher asked for a settled event, and
    `credit` who pays for what passes it on.

    `handlers` is how many were to handle it (a chain is one), `left` how many have not ended yet, `done` how many ended well,
    `skipped` how many never ran, `failures` what became of those and of the ones that failed, `published` the topics that
    its handlers published, `refusals` the publishes that were refused to those that ended well, and `settled` who is
    called when the last one has ended. `held` says that guards look at it before anybody else gets it, and
    `passing` that handling it is no use of an instance: it is not kept for that.
    """

    __slots__ = (
        "_data",
        "asks",
        "credit",
        "depth",
        "done",
        "entering",
        "failures",
        "form",
        "handlers",
        "held",
        "left",
        "passing",
        "payload",
        "principal",
        "published",
        "refusals",
        "root",
        "seq",
        "settled",
        "skipped",
        "source_id",
        "time",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        payload: bytes,
        data: object,
        principal: str | None,
        source_id: str,
        seq: int,
        time: float,
        entering: bool,
        depth: int = 0,
        root: float = 0.0,
        asks: bool = False,
        form: Callable[[bytes], object] | None = None,
        credit: Credit | None = None,
    ) -> None:
        self.topic = topic
        self.payload = payload
        self._data = data
        self.form = form
        self.credit = credit
        self.principal = principal
        self.source_id = source_id
        self.seq = seq
        self.time = time
        self.entering = entering
        self.depth = depth
        self.root = root
        self.asks = asks
        self.handlers = self.left = self.done = self.skipped = 0
        self.held = self.passing = False
        self.failures: list[Failure] | None = None
        self.published: list[str] | None = None
        self.refusals: list[tuple[str, Failure]] | None = None
        self.settled: list[Callable[[], None]] | None = None

    @property
    def data(self) -> object:
        """The payload, decoded."""
        form = self.form
        return self._data if form is None or self._data is not None else form(self.payload)

    def forget_data(self) -> None:
        """Keep the payload's bytes only."""
        if self.form is not None:
            self._data = None

    def note_published(self, topics: list[str]) -> None:
        """Add to the topics that its handlers published."""
        if self.published is None:
            self.published = topics
        else:
            self.published.extend(topics)
