"""Running calls: the scheduler, its worker pool, the epoch ticker, and host functions as tasks.

A call belongs to one thread at a time and ends exactly once, whatever its guest does. Waits and cancellation are bounded by
ticks of 10 ms.
"""

from astrid_host.scheduler.accounts import Account, Accounts
from astrid_host.scheduler.call import Backpressure, Call, Owner, Pace, Refusal
from astrid_host.scheduler.once import call_once
from astrid_host.scheduler.scheduler import Scheduler, Source
from astrid_host.scheduler.tasks import Tasks

__all__ = [
    "Account",
    "Accounts",
    "Backpressure",
    "Call",
    "Owner",
    "Pace",
    "Refusal",
    "Scheduler",
    "Source",
    "Tasks",
    "call_once",
]
