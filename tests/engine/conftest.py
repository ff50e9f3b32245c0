"""An engine for the tests of a module, and threads that take turns quickly."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from astrid_host.engine import Engine


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(None)


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Threads change as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)
