"""From the bus to interceptors: handlers found by topic, three ways of delivery, queues, and the account of each event.

Every event that a handler did not end well is reported exactly once; the publisher is never told otherwise.
"""

from astrid_host.dispatch.dispatcher import Dispatcher
from astrid_host.dispatch.handlers import Handler, Receiver
from astrid_host.dispatch.quarantine import Quarantine
from astrid_host.dispatch.queues import Queue, Queues

__all__ = ["Dispatcher", "Handler", "Quarantine", "Queue", "Queues", "Receiver"]
