"""The dispatcher: takes events from the bus to handlers, and makes one report of each that was not handled well.

It only matches topics and calls interceptors. Queues are per capsule and principal. A chain enters a member's queue when
the member before it has ended; it fails closed, unless the member's row says `on_error = "continue"`. A fan-out is reported
when its last handler has ended. Guards are a chain of their own, before handlers and subscriptions; what they return as data is
not taken over, so what passed the first is what the others, and those behind them, get. The bus's lock is held in everything but
`ended`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from astrid_host.bus import Bus, Event, Failure
from astrid_host.dispatch.backpressure import Backpressure, waits_for
from astrid_host.dispatch.handlers import Handler, Handlers, Receiver, Route
from astrid_host.dispatch.outcomes import WENT_ON, Outcome, first_of, outcome, with_refusals
from astrid_host.dispatch.queues import Queue, Work
from astrid_host.errors import GuestCancelled, GuestFailed
from astrid_host.scheduler import Accounts, Call, Scheduler
from astrid_host.topics import KERNEL_TOPICS

log = logging.getLogger(__name__)
now = time.monotonic


class Dispatcher:
    """The sink of one host's bus.

    Args:
        bus: whose events it takes.
        scheduler: who runs the calls.
        owner: the principal of events that have none.
        accounts: where calls are counted by principal.
    """

    def __init__(self, bus: Bus, scheduler: Scheduler, owner: str, accounts: Accounts) -> None:
        self.bus = bus
        self.scheduler = scheduler
        self.owner = owner
        self.accounts = accounts
        self.handlers = Handlers()
        self.full_queues: set[Queue] = set()  # queues without room for one more event

    # From the bus to the queues.

    def receives(self, topic: str) -> bool:
        return bool(self.handlers.route(topic).handlers)

    def admit(self, event: Event) -> bool:
        route = self.handlers.routes.get(event.topic) or self.handlers.route(event.topic)
        if route.guards:
            if not route.handlers and not self.bus.subscribed(event.topic, event.principal):
                return False
            event.held = True
            event.handlers = event.left = 1
            self._enter_chain(event, event.payload, route.guards, 0)
            return True
        return self._hand_out(event, route)

    def _hand_out(self, event: Event, route: Route) -> bool:
        """Queue an event for its handlers; False when it has none."""
        handlers = route.handlers
        if not handlers:
            return False
        if route.chain:
            event.handlers = event.left = 1
            self._enter_chain(event, event.payload, handlers, 0)
        else:
            event.handlers = event.left = len(handlers)
            for handler in handlers:
                refused = self._enqueue(handler, event, event.payload, (), 0)
                if refused is not None:
                    self._handler_failed(event, handler, refused)
        return True

    def _let_pass(self, event: Event) -> None:
        """All guards let an event pass: it comes to those that it was held from."""
        event.held = event.entering = False
        event.handlers = event.left = 0
        offered = self.bus.offer(event)
        if not self._hand_out(event, self.handlers.route(event.topic)) and not offered:
            event.failures = [Failure("no-handler", f"nothing handles or receives {event.topic!r} any more")]

    def _enter_chain(self, event: Event, payload: bytes, chain: tuple[Handler, ...], step: int) -> None:
        """Queue an event for the member of a chain whose turn it is; one that cannot take it fails like one that ran."""
        for at in range(step, len(chain)):
            refused = self._enqueue(chain[at], event, payload, chain, at)
            if refused is None:
                return
            if not self._opted_out(event, chain[at], refused):
                self._handler_failed(event, chain[at], refused)
                return
        if chain[0].guard:
            self._let_pass(event)
            return
        event.done += 1
        event.left -= 1

    def _enqueue(
        self, handler: Handler, event: Event, payload: bytes, chain: tuple[Handler, ...], step: int
    ) -> Outcome | None:
        """Queue an event for a handler; None, or why it was refused."""
        receiver = handler.receiver
        if handler.gone:
            return Outcome(GuestCancelled.reason, _unloaded(receiver.id), ran=False)
        if receiver.quarantine.records:
            seconds = receiver.quarantine.left(self._principal(event), now())
            if seconds:
                detail = f"{receiver.id} trapped too often for {event.principal}: not called for {seconds:.1f} s more"
                return Outcome("quarantined", detail, ran=False)
        queues = receiver.queues
        queue = queues.by_principal.get(event.principal) or queues.get(self, receiver, event.principal)
        work = Work(queue, handler, event, payload, chain, step)
        if self.full_queues and not queue.takes(work):
            waiting = queue.entering if work.entering else len(queue.works) - queue.entering
            whose = f"of {event.principal}" if queue.rooms == 1 else "of principals that share a queue"
            detail = f"{receiver.id} is busy: {waiting} events {whose} wait for it already"
            return Outcome("queue-full", detail, ran=False)
        backlog = self.bus.backlog
        if backlog.pressed and (why := backlog.refuses(event.principal, len(payload))):
            return Outcome("queue-full", f"there is no room for the event: {why}", ran=False)
        queue.put(work)
        return None

    def _principal(self, event: Event) -> str:
        return self.owner if event.principal is None else event.principal

    # Who has to wait for room.

    def _queues_on(self, route: Route, principal: str | None) -> list[Queue]:
        found = (handler.receiver.queues.find(principal) for handler in route.path)
        return [queue for queue in found if queue is not None]

    def full(self, topic: str, principal: str | None) -> Queue | None:
        """A queue that has no room for one more entering event of that topic, if there is one."""
        if not self.full_queues:
            return None
        route = self.handlers.route(topic)
        for step, queue in enumerate(self._queues_on(route, principal)):
            if queue.is_full(entering=not (route.in_steps and step)):
                return queue
        return None

    def refuses(self, call: Call, topic: str, principal: str, size: int) -> str | None:
        """Whether one more event of so many bytes that a guest publishes has room: why not, or None.

        When it has room but a queue on its way is full, the guest is made to stand still.
        """
        own = call.owner.queue if isinstance(call.owner, Work) else None
        home = call if own is None else own
        if home.gave_up:
            home.gave_up = tuple(queue for queue in home.gave_up if queue in self.full_queues)
        route = self.handlers.route(topic)
        if route.path and (why := self.bus.backlog.refuses(principal, size)):
            return why
        for step, queue in enumerate(self._queues_on(route, principal)):
            entering = call.follows and not (route.in_steps and step)
            if not queue.is_full(entering):
                continue
            if queue is own or queue in home.gave_up or (own is not None and own in waits_for(queue)):
                return f"{queue.receiver.id} is busy: {len(queue.works)} events wait for it on behalf of {principal}"
            if call.backpressure is None:
                self.scheduler.block_locked(call, Backpressure(call, own, queue, entering, now()))
        return None

    # What became of them.

    def ended(self, work: Work, call: Call, failure: BaseException | None) -> None:
        """A handler's call is over: go on with its chain, or close its event's account. No lock is held."""
        if failure is not None and not isinstance(failure, GuestFailed):
            log.error("%s/%s: a host function failed", work.handler.receiver.id, work.handler.action, exc_info=failure)
        result = call.result
        if failure is None and result.action == "continue" and not result.data:
            ended = told = WENT_ON
        else:
            ended = told = outcome(result, failure, call.began)
        with self.bus.lock:
            queue = work.queue
            queue.ended(work, call)
            event, handler = work.event, work.handler
            if not told.reason and handler.reply and told.data:
                handler.receiver.publisher.reply(call, handler.reply, told.data)
            if call.published:
                event.note_published(call.published)
            if told.reason:
                told.detail = with_refusals(told.detail, call.refused)
                if work.chain and self._opted_out(event, handler, told):
                    told = WENT_ON
            went_on = bool(work.chain) and self._goes_on(work, call, told)
            if not went_on and told.reason:
                self._handler_failed(event, handler, told)
            elif not went_on:
                event.done += 1
                event.left -= 1
            if call.refused and not told.reason:
                self._note_refusals(work, call)
            if isinstance(call.backpressure, Backpressure):
                queue.hold(call.backpressure)
            if queue.works:
                queue.schedule()
            if not event.left and (event.failures or event.refusals or event.settled or event.asks):
                self.settle(event)
            self._count(call, ended)  # last: a quarantine lets go what waits, which comes after this event

    def _count(self, call: Call, told: Outcome) -> None:
        """Account for a call that is over; a capsule that traps too often for a principal is not called for a while."""
        capsule, reason, worked, memory_bytes = call.capsule, told.reason, call.worked, call.memory_bytes
        by_principal = self.accounts.by_principal
        # `Account.ended`, written out: it runs twice for each call.
        for account in (
            capsule.account,
            by_principal.get(call.principal) or self.accounts.of(call.principal),
        ):
            account.calls += 1
            account.cpu_s += worked
            if memory_bytes > account.peak_bytes:
                account.peak_bytes = memory_bytes
            if reason:
                account.failures[reason] = account.failures.get(reason, 0) + 1
        if reason != "trap" or not capsule.quarantines:
            return
        seconds = capsule.quarantine.trapped(call.principal, now())
        if seconds is None:
            return
        log.warning(
            "%s trapped too often for %s: it is not called for that principal for %g s; the last one: %s",
            capsule.id,
            call.principal,
            seconds,
            told.detail.partition("\n")[0],
        )
        assert call.message is not None, "a handler's call has an event"
        queue = capsule.queues.find(call.message.principal)
        if queue is not None:
            gone = f"{capsule.id} trapped too often for {call.principal}: not called for {seconds:g} s more"
            self._fail_all(queue.clear_of(call.message.principal), Outcome("quarantined", gone, ran=False))

    def _opted_out(self, event: Event, handler: Handler, told: Outcome) -> bool:
        """In a chain, the failure of a member whose row says `on_error = "continue"` is only logged. A denial is none, and what
        was cancelled does not go on."""
        if not handler.goes_on or told.reason in ("deny", "cancelled"):
            return False
        log.warning(
            "%s: %s/%s failed (%s: %s); its row lets the chain go on",
            event.topic,
            handler.receiver.id,
            handler.action,
            told.reason,
            told.detail,
        )
        return True

    def _goes_on(self, work: Work, call: Call, told: Outcome) -> bool:
        """Whether the event went on to the next member of its chain, or past the last of its guards."""
        step, is_guard = work.step + 1, work.handler.guard
        if told.final or told.reason:
            return False
        if step >= len(work.chain):
            if is_guard:
                self._let_pass(work.event)
            return is_guard
        payload = told.data.encode() if told.data and not is_guard else work.payload
        self._enter_chain(work.event, payload, work.chain, step)
        if call.backpressure is None and self.full_queues:
            ahead = work.chain[step].receiver.queues.find(work.event.principal)
            full = ahead is not None and ahead is not work.queue and ahead.is_full(False)
            if full and ahead is not None and work.queue not in waits_for(ahead):
                call.backpressure = Backpressure(call, work.queue, ahead, False, now())
        return True

    def _note_refusals(self, work: Work, call: Call) -> None:
        """They are reported when all handlers have ended: by then it is known what the event led to all the same."""
        receiver, action = work.handler.receiver.id, work.handler.action
        noted = [(topic, Failure(why.reason, why.detail, receiver, action)) for topic, why in call.refused.items()]
        work.event.refusals = [*(work.event.refusals or ()), *noted]

    def _handler_failed(self, event: Event, handler: Handler, told: Outcome) -> None:
        event.left -= 1
        event.skipped += not told.ran
        if told.reason == "queue-full" and event.topic.startswith(KERNEL_TOPICS):
            self.bus.kernel_refused.count(handler.receiver.id)
            return
        failure = Failure(told.reason, told.detail, handler.receiver.id, handler.action)
        if event.failures is None:
            event.failures = [failure]
        else:
            event.failures.append(failure)

    def settle(self, event: Event) -> None:
        """The last handler of an event has ended: report what failed, and tell who asked to be told."""
        if event.failures is not None:
            self.bus.report(event, first_of(event.failures))
        for topic, failure in event.refusals or ():
            self.bus.report(event, failure, tried=topic)
        if event.settled is not None:
            callbacks, event.settled = event.settled, None
            for callback in callbacks:
                callback()
        if event.asks:
            self.bus.tell_settled(event)

    def cancel(self, principal: str, concerned: Callable[[Event], bool], why: str) -> None:
        """End the handling of some events of a principal: what waits is dropped, what runs is stopped. Each is reported.

        Args:
            concerned: whether an event is one of them. Run loops are not stopped, whatever they handle.
        """
        for call in list(self.scheduler.live):
            if isinstance(call.owner, Work) and call.principal == principal and concerned(call.owner.event):
                self.scheduler.cancel_locked(call, GuestCancelled(why))
        gone = Outcome(GuestCancelled.reason, why, ran=False)
        for receiver in self.handlers.receivers():
            queue = receiver.queues.find(principal)
            if queue is not None and queue.works:
                self._fail_all(queue.clear_of(principal, concerned), gone)

    # Capsules and principals that come and go.

    def add(self, handlers: list[Handler]) -> None:
        for handler in handlers:
            self.handlers.add(handler)

    def remove(self, receiver: Receiver, handlers: list[Handler]) -> None:
        """Take a capsule's handlers out; what waits for them is reported as cancelled, what runs goes on."""
        for handler in handlers:
            self.handlers.remove(handler)
            handler.gone = True
        self._fail_gone(receiver)

    def replace(self, new: Receiver, before: list[Handler], after: list[Handler]) -> list[Handler]:
        """Let a capsule's next version take over: what waits is handled by it, in order, once what runs has ended.

        Args:
            new: the next version; the queues are its own already.
            before: the handlers until now.
            after: those of the next version.

        Returns:
            The handlers that are active now: a row that is in both keeps its own, because events may be on their way to it.
        """
        kept = {(handler.pattern, handler.action): handler for handler in before}
        for handler in before:
            self.handlers.remove(handler)
        active = []
        for handler in after:
            same = kept.pop((handler.pattern, handler.action), None)
            if same is not None:
                same.follow(handler)
            active.append(same or handler)
        for handler in kept.values():
            handler.gone = True
        self.add(active)
        for queue in new.queues:
            queue.belong_to(new)
        self._fail_gone(new)
        return active

    def _fail_gone(self, receiver: Receiver) -> None:
        """What waits for handlers that are gone does not reach them any more."""
        gone = Outcome(GuestCancelled.reason, _unloaded(receiver.id), ran=False)
        for queue in list(receiver.queues):
            self._fail_all(queue.clear_gone(), gone)

    def _fail_all(self, works: list[Work], told: Outcome) -> None:
        """Close the account of events that wait no more; chains whose rows let them go on."""
        for work in works:
            if work.chain and self._opted_out(work.event, work.handler, told):
                self._enter_chain(work.event, work.payload, work.chain, work.step + 1)
            else:
                self._handler_failed(work.event, work.handler, told)
            if not work.event.left:
                self.settle(work.event)


def _unloaded(capsule: str) -> str:
    return f"{capsule} was unloaded, or replaced by a version without that handler, before it handled the event"
