"""Running calls: turns of the loop's thread, the crew, the clock, and host functions as tasks.

A call belongs to one thread at a time and ends exactly once, whatever its guest does. Waits and cancellation are bounded by
ticks of 10 ms.
"""

from astrid_host.calls.call import Call, Owner, Pace
from astrid_host.calls.once import call_once
from astrid_host.calls.tasks import Tasks
from astrid_host.calls.turns import Source, Turns

__all__ = ["Call", "Owner", "Pace", "Source", "Tasks", "Turns", "call_once"]
