"""What a manifest allows: one function for each question, pure, asked before anything is done or revealed.

An answer is None when it is allowed, else a `Denial`: the case of `error-code` that the guest gets, and a detail for
people that names what to write into the Capsule.toml. Checks come in the order of Astrid's own host: form before
rights.
"""

from astrid_host.gates.asks import Ask, asks_of
from astrid_host.gates.capabilities import holds
from astrid_host.gates.contracts import Contracts, Speaker
from astrid_host.gates.paths import covers, may_read, may_write
from astrid_host.gates.precedence import GivesWay, gives_way
from astrid_host.gates.rules import Rule, Rules
from astrid_host.gates.topics import PublishGate, SubscribeGate, may_publish, may_subscribe
from astrid_host.gates.verdicts import Denial, Verdicts, quoted

__all__ = [
    "Ask",
    "Contracts",
    "Denial",
    "GivesWay",
    "PublishGate",
    "Rule",
    "Rules",
    "Speaker",
    "SubscribeGate",
    "Verdicts",
    "asks_of",
    "covers",
    "gives_way",
    "holds",
    "may_publish",
    "may_read",
    "may_subscribe",
    "may_write",
    "quoted",
]
