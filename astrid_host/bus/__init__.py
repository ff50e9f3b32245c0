"""The event bus: numbered events, subscriptions, observers, rates and failure reports.

Nothing here runs a guest or knows a capsule; handlers are queued by a `Sink` that the composition root supplies.
"""

from astrid_host.bus.bus import Bus, Sink
from astrid_host.bus.events import Event
from astrid_host.bus.reports import FAILED, KERNEL_TOPICS, Failure, Report
from astrid_host.bus.subscriptions import Subscription

__all__ = ["FAILED", "KERNEL_TOPICS", "Bus", "Event", "Failure", "Report", "Sink", "Subscription"]
