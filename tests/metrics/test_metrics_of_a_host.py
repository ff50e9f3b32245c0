"""What guests of a host do shows in the next scrape."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import trio
from guests_in_wat import Guest, bad, hosted, next_of
from prometheus_client.parser import text_string_to_metric_families

from astrid_host import Host
from astrid_host.metrics import serve

SETTLED = "astrid.v1.dispatch.settled."


async def _settled(host: Host, topic: str, principal: str) -> None:
    """Publish, and wait until all handlers are done with it."""
    async with host.subscribe(SETTLED + topic) as events:
        host.publish(topic, {"n": 1}, principal=principal, settle=True)
        await next_of(events)


async def _scraped(url: str) -> dict[tuple[str, str], float]:
    """Samples by name and what their labels say, joined."""

    def scrape() -> str:
        with urllib.request.urlopen(url, timeout=10) as answer:
            text: str = answer.read().decode()
        return text

    found = text_string_to_metric_families(await trio.to_thread.run_sync(scrape))
    samples = [sample for family in found for sample in family.samples]
    return {(sample.name, " ".join(sample.labels.values())): sample.value for sample in samples}


async def test_what_guests_do_shows_in_the_next_scrape(tmp_path: Path) -> None:
    bad(tmp_path, Guest().handles("unreachable"))
    async with hosted(tmp_path) as host:
        with serve(host.stats, "127.0.0.1", 0) as url:
            before = await _scraped(url)
            await _settled(host, "good.ask", "alice")
            await _settled(host, "good.ask", "bob")
            await _settled(host, "bad.ask", "bob")
            after = await _scraped(url)
    assert {("astrid_capsule_calls_total", "good"), ("astrid_capsule_calls_total", "bad")} <= set(before)
    grown = {name: value - before.get(name, 0) for name, value in after.items() if value != before.get(name, 0)}
    expected = {
        ("astrid_capsule_calls_total", "good"): 2,
        ("astrid_capsule_events_published_total", "good"): 2,
        ("astrid_capsule_published_bytes_total", "good"): 2 * len('{"n":1}'),
        ("astrid_capsule_calls_total", "bad"): 1,
        ("astrid_capsule_failures_total", "bad trap"): 1,
        ("astrid_principal_calls_total", "alice"): 1,
        ("astrid_principal_events_published_total", "alice"): 1,
        ("astrid_principal_calls_total", "bob"): 2,
        ("astrid_principal_failures_total", "bob trap"): 1,
        ("astrid_dispatch_failures_total", "trap"): 1,
    }
    assert {name: grown.get(name) for name in expected} == expected
    for name in ("astrid_capsule_cpu_seconds_total", "astrid_capsule_peak_memory_bytes"):
        assert grown[name, "good"] > 0
    assert grown["astrid_bus_events_published_total", ""] >= 3 + 2 + 3
    assert ("astrid_principal_failures_total", "alice trap") not in after
