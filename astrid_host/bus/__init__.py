"""The event bus: numbered events, subscriptions, broadcast receivers, observers, rates and reports.

Nothing here runs a guest or knows a capsule; handlers are queued by a `Sink` that the composition root supplies.
"""

from astrid_host.bus.backlog import Backlog
from astrid_host.bus.broadcast import Receiver
from astrid_host.bus.bus import Bus, Sink
from astrid_host.bus.events import Event
from astrid_host.bus.losses import Losses
from astrid_host.bus.rates import Credit
from astrid_host.bus.reports import FAILED, SETTLED, Failure, Report
from astrid_host.bus.subscriptions import Subscription

__all__ = [
    "FAILED",
    "SETTLED",
    "Backlog",
    "Bus",
    "Credit",
    "Event",
    "Failure",
    "Losses",
    "Receiver",
    "Report",
    "Sink",
    "Subscription",
]
