"""Running calls: turns of the loop's thread, the crew, the clock, and host functions as tasks.

A call belongs to one thread at a time and ends exactly once, whatever its guest does. Waits and cancellation are bounded by
ticks of 10 ms.
"""

from astrid_host.calls.accounts import Account, Accounts
from astrid_host.calls.call import Brake, Call, Owner, Pace, Refusal
from astrid_host.calls.once import call_once
from astrid_host.calls.shares import CROWD
from astrid_host.calls.tasks import Tasks
from astrid_host.calls.turns import Source, Turns

__all__ = [
    "CROWD",
    "Account",
    "Accounts",
    "Brake",
    "Call",
    "Owner",
    "Pace",
    "Refusal",
    "Source",
    "Tasks",
    "Turns",
    "call_once",
]
