"""The dispatcher: takes events from the bus to handlers, and makes one report of each that was not handled well.

It only matches topics and calls interceptors. Queues are per capsule and principal. A chain enters a member's queue when
the member before it has ended; it fails closed, unless the member's row says `on_error = "continue"`. A fan-out is reported
when its last handler has ended. The bus's lock is held in everything but `ended`.
"""

from __future__ import annotations

import logging

from astrid_host.bus import Bus, Event, Failure
from astrid_host.calls import Call, Turns
from astrid_host.dispatch.handlers import Handler, Handlers, Receiver
from astrid_host.dispatch.outcomes import WENT_ON, Outcome, first_of, outcome, with_refusals
from astrid_host.dispatch.queues import ENTERING_ROOM, FOLLOWING_ROOM, Queue, Work
from astrid_host.errors import GuestCancelled, GuestFailed

log = logging.getLogger(__name__)


class Dispatcher:
    """The sink of one host's bus.

    Args:
        bus: whose events it takes.
        turns: who runs the calls.
        owner: the principal of events that have none.
    """

    def __init__(self, bus: Bus, turns: Turns, owner: str) -> None:
        self.bus = bus
        self.turns = turns
        self.owner = owner
        self.handlers = Handlers()
        self.crowded: set[Queue] = set()  # queues without room for one more event that follows

    # From the bus to the queues.

    def receives(self, topic: str) -> bool:
        return bool(self.handlers.route(topic).handlers)

    def admit(self, event: Event) -> bool:
        route = self.handlers.route(event.topic)
        handlers = route.handlers
        if not handlers:
            return False
        if route.chain:
            event.handlers = event.left = 1
            self._enqueue(handlers[0], event, event.payload, handlers, 0)
        else:
            event.handlers = event.left = len(handlers)
            for handler in handlers:
                self._enqueue(handler, event, event.payload, (), 0)
        return True

    def _enqueue(self, handler: Handler, event: Event, payload: bytes, chain: tuple[Handler, ...], step: int) -> None:
        queues = handler.receiver.queues
        queue = queues.get(event.principal)
        if queue is None:
            queue = queues[event.principal] = Queue(self, handler.receiver, event.principal)
        entering = event.entering and not step
        if not queue.has_room(entering):
            room = ENTERING_ROOM if entering else FOLLOWING_ROOM
            detail = f"{handler.receiver.id} is busy: {room} events of {event.principal} wait for it already"
            self._handler_failed(event, handler, Outcome("queue-full", detail))
            return
        queue.put(Work(queue, handler, event, payload, chain, step), entering)

    def full(self, topic: str, principal: str | None) -> Queue | None:
        """A queue that has no room for one more entering event of that topic, if there is one."""
        route = self.handlers.route(topic)
        for handler in route.handlers[:1] if route.chain else route.handlers:
            queue = handler.receiver.queues.get(principal)
            if queue is not None and queue.entering >= ENTERING_ROOM:
                return queue
        return None

    def congested(self, topic: str, principal: str | None) -> bool:
        """Whether a handler's queue has no room for one more event that follows from another's handling."""
        if not self.crowded:
            return False
        route = self.handlers.route(topic)
        for handler in route.handlers[:1] if route.chain else route.handlers:
            queue = handler.receiver.queues.get(principal)
            if queue is not None and not queue.has_room(False):
                return True
        return False

    # What became of them.

    def ended(self, work: Work, call: Call, failure: BaseException | None) -> None:
        """A handler's call is over: go on with its chain, or close its event's account. No lock is held."""
        if failure is not None and not isinstance(failure, GuestFailed):
            log.error("%s/%s: a host function failed", work.handler.receiver.id, work.handler.action, exc_info=failure)
        told = outcome(call.result, failure)
        work.handler.receiver.count(told.reason)
        with self.bus.lock:
            queue = work.queue
            queue.running -= 1
            if queue.works:
                queue.schedule()
            event, handler = work.event, work.handler
            if not told.reason and handler.reply and told.data:
                handler.receiver.publisher.reply(call, handler.reply, told.data)
            if call.published:
                event.note_published(call.published)
            if told.reason:
                told.detail = with_refusals(told.detail, call.refused)
                told = self._opted_out(work, told)
            went_on = self._goes_on(work, told)
            if not went_on and told.reason:
                self._handler_failed(event, handler, told)
            elif not went_on:
                event.done += 1
                event.left -= 1
            if call.refused and not told.reason:
                self._note_refusals(work, call)
            if not went_on and not event.left:
                self.settle(event)

    def _opted_out(self, work: Work, told: Outcome) -> Outcome:
        """In a chain, the failure of a member whose row says `on_error = "continue"` is only logged; a denial is none."""
        handler = work.handler
        if not work.chain or not handler.goes_on or told.reason == "deny":
            return told
        log.warning(
            "%s: %s/%s failed (%s: %s); its row lets the chain go on",
            work.event.topic,
            handler.receiver.id,
            handler.action,
            told.reason,
            told.detail,
        )
        return WENT_ON

    def _goes_on(self, work: Work, told: Outcome) -> bool:
        """Whether the event went on to the next member of its chain."""
        step = work.step + 1
        if step >= len(work.chain) or told.final or told.reason:
            return False
        payload = told.data.encode() if told.data else work.payload
        self._enqueue(work.chain[step], work.event, payload, work.chain, step)
        if not work.event.left:  # it had no room
            self.settle(work.event)
        return True

    def _note_refusals(self, work: Work, call: Call) -> None:
        """They are reported when all handlers have ended: by then it is known what the event led to all the same."""
        receiver, action = work.handler.receiver.id, work.handler.action
        noted = [(topic, Failure("publish-denied", why, receiver, action)) for topic, why in call.refused.items()]
        work.event.refusals = [*(work.event.refusals or ()), *noted]

    def _handler_failed(self, event: Event, handler: Handler, told: Outcome) -> None:
        failure = Failure(told.reason, told.detail, handler.receiver.id, handler.action)
        if event.failures is None:
            event.failures = [failure]
        else:
            event.failures.append(failure)
        event.left -= 1

    def settle(self, event: Event) -> None:
        """The last handler of an event has ended: report what failed, and tell who asked to be told."""
        if event.failures is not None:
            self.bus.report(event, first_of(event.failures))
        for topic, failure in event.refusals or ():
            self.bus.report(event, failure, topic=topic)
        if event.settled is not None:
            callbacks, event.settled = event.settled, None
            for callback in callbacks:
                callback()

    # Capsules and principals that come and go.

    def sweep(self, receiver: Receiver) -> None:
        """Forget the queues in which nothing waits or runs."""
        for principal, queue in list(receiver.queues.items()):
            if not (queue.works or queue.running or queue.outside):
                del receiver.queues[principal]

    def add(self, handlers: list[Handler]) -> None:
        for handler in handlers:
            self.handlers.add(handler)

    def remove(self, receiver: Receiver, handlers: list[Handler]) -> None:
        """Take a capsule's handlers out; what waits for them is reported as cancelled, what runs goes on."""
        for handler in handlers:
            self.handlers.remove(handler)
        for queue in receiver.queues.values():
            while queue.works:
                work = queue.works.popleft()
                gone = GuestCancelled(f"{receiver.id} was unloaded before it handled the event")
                self._handler_failed(work.event, work.handler, Outcome(gone.reason, str(gone)))
                if not work.event.left:
                    self.settle(work.event)
            queue.entering = 0
            self.crowded.discard(queue)
            while queue.outside:
                queue.let_in()
