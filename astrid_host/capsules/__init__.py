"""Capsules: found in folders, ordered, loaded, started, and closed.

A capsule that fails to load is kept with its error and does not stop the others.
"""

from astrid_host.capsules.capsule import Capsule
from astrid_host.capsules.consent import Consent, Trust, TrustPolicy, TrustRequest
from astrid_host.capsules.discovery import find_folders, trusted_in, unsatisfied
from astrid_host.capsules.lifecycle import LIFECYCLE, Lifecycle
from astrid_host.capsules.loading import EXPORTS, Loader
from astrid_host.capsules.registry import Registry
from astrid_host.capsules.reloader import Reloader
from astrid_host.capsules.runloops import RunLoops

__all__ = [
    "EXPORTS",
    "LIFECYCLE",
    "Capsule",
    "Consent",
    "Lifecycle",
    "Loader",
    "Registry",
    "Reloader",
    "RunLoops",
    "Trust",
    "TrustPolicy",
    "TrustRequest",
    "find_folders",
    "trusted_in",
    "unsatisfied",
]
