"""The counts of a host as Prometheus metrics: which there are, what they are called, and what they say."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry, generate_latest

import astrid_host
from astrid_host.metrics import HostCollector, families
from astrid_host.stats import HostStats, Quarantined, Usage

NOTHING = HostStats(
    events=0,
    bytes=0,
    failures={},
    dropped={},
    lagged={},
    kernel_refused=0,
    queues=0,
    queued=0,
    instances=0,
    waiting=0,
    quarantined=(),
    capsules={},
    principals={},
)
BUSY = HostStats(
    events=120,
    bytes=4096,
    failures={"trap": 3, "queue-full": 2},
    dropped={"chat.v1.*": 7},
    lagged={"tail": 11},
    kernel_refused=1,
    queues=5,
    queued=9,
    instances=4,
    waiting=2,
    quarantined=(Quarantined("shaky", "alice", 1.5), Quarantined("shaky", "bob", 120.0)),
    capsules={
        "shaky": Usage(40, {"trap": 3, "timeout": 1}, 0.25, 20, 1000, 65536),
        "steady": Usage(60, {}, 1.75, 100, 3096, 131072),
    },
    principals={
        "alice": Usage(90, {"trap": 3}, 1.5, 110, 4000, 131072),
        "*": Usage(10, {"timeout": 1}, 0.5, 10, 96, 65536),
    },
)
EXPOSED = f"""\
astrid_build_info{{version="{astrid_host.__version__}"}} 1.0
astrid_bus_events_published_total 120.0
astrid_bus_published_bytes_total 4096.0
astrid_bus_receiver_lagged_total{{subscriber="tail"}} 11.0
astrid_bus_subscription_dropped_total{{pattern="chat.v1.*"}} 7.0
astrid_dispatch_failures_total{{reason="trap"}} 3.0
astrid_dispatch_failures_total{{reason="queue-full"}} 2.0
astrid_dispatch_kernel_events_refused_total 1.0
astrid_dispatch_queues 5.0
astrid_dispatch_queued_events 9.0
astrid_dispatch_quarantined 2.0
astrid_dispatch_quarantine_remaining_seconds{{capsule="shaky",principal="alice"}} 1.5
astrid_dispatch_quarantine_remaining_seconds{{capsule="shaky",principal="bob"}} 120.0
astrid_guest_instances 4.0
astrid_guest_instances_waiting 2.0
astrid_capsule_calls_total{{capsule="shaky"}} 40.0
astrid_capsule_calls_total{{capsule="steady"}} 60.0
astrid_capsule_failures_total{{capsule="shaky",reason="trap"}} 3.0
astrid_capsule_failures_total{{capsule="shaky",reason="timeout"}} 1.0
astrid_capsule_cpu_seconds_total{{capsule="shaky"}} 0.25
astrid_capsule_cpu_seconds_total{{capsule="steady"}} 1.75
astrid_capsule_events_published_total{{capsule="shaky"}} 20.0
astrid_capsule_events_published_total{{capsule="steady"}} 100.0
astrid_capsule_published_bytes_total{{capsule="shaky"}} 1000.0
astrid_capsule_published_bytes_total{{capsule="steady"}} 3096.0
astrid_capsule_peak_memory_bytes{{capsule="shaky"}} 65536.0
astrid_capsule_peak_memory_bytes{{capsule="steady"}} 131072.0
astrid_principal_calls_total{{principal="alice"}} 90.0
astrid_principal_calls_total{{principal="*"}} 10.0
astrid_principal_failures_total{{principal="alice",reason="trap"}} 3.0
astrid_principal_failures_total{{principal="*",reason="timeout"}} 1.0
astrid_principal_cpu_seconds_total{{principal="alice"}} 1.5
astrid_principal_cpu_seconds_total{{principal="*"}} 0.5
astrid_principal_events_published_total{{principal="alice"}} 110.0
astrid_principal_events_published_total{{principal="*"}} 10.0
astrid_principal_published_bytes_total{{principal="alice"}} 4000.0
astrid_principal_published_bytes_total{{principal="*"}} 96.0
astrid_principal_peak_memory_bytes{{principal="alice"}} 131072.0
astrid_principal_peak_memory_bytes{{principal="*"}} 65536.0
"""
DOCUMENT = (Path(astrid_host.__file__).parent.parent / "docs" / "metrics.md").read_text("utf-8")


def _exposed(stats: HostStats) -> str:
    registry = CollectorRegistry()
    registry.register(HostCollector(lambda: stats))
    return generate_latest(registry).decode()


def _samples(stats: HostStats) -> str:
    return "".join(line for line in _exposed(stats).splitlines(keepends=True) if not line.startswith("#"))


def test_every_count_of_a_host_is_a_sample() -> None:
    assert _samples(BUSY) == EXPOSED


def test_a_host_without_work_has_the_same_metrics_and_no_samples_by_label() -> None:
    assert [(family.name, family.type) for family in families(NOTHING)] == [
        (family.name, family.type) for family in families(BUSY)
    ]
    labelled = [line for line in _samples(NOTHING).splitlines() if "{" in line]
    assert labelled == [f'astrid_build_info{{version="{astrid_host.__version__}"}} 1.0']
    assert {line.split()[-1] for line in _samples(NOTHING).splitlines() if "{" not in line} == {"0.0"}


def test_what_only_grows_is_a_counter_and_what_comes_and_goes_a_gauge() -> None:
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", _exposed(BUSY), re.MULTILINE))
    assert types.pop("astrid_build_info") == "gauge"
    assert {name for name, kind in types.items() if kind == "counter"} == {name for name in types if "_total" in name}
    assert set(types.values()) == {"counter", "gauge"}


def test_names_that_people_chose_are_escaped() -> None:
    stats = _with_capsule('"quoted"\\\n')
    assert 'astrid_capsule_calls_total{capsule="\\"quoted\\"\\\\\\n"} 1.0\n' in _samples(stats)


def test_a_scrape_shows_only_what_the_counts_have_now() -> None:
    held = [_with_capsule("gone"), _with_capsule("here")]
    registry = CollectorRegistry()
    registry.register(HostCollector(lambda: held.pop(0)))
    assert b'capsule="gone"' in generate_latest(registry)
    assert b'capsule="gone"' not in generate_latest(registry)


def test_the_document_has_every_metric_with_its_type_and_labels_and_no_other() -> None:
    exposed = {}
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", _exposed(BUSY), re.MULTILINE):
        labels = re.search(rf"^{name}\{{(.*)\}}", EXPOSED, re.MULTILINE)
        exposed[name] = (kind, re.findall(r"(\w+)=", labels[1]) if labels else [])
    rows = re.findall(r"^\| `(astrid_\w+)` \| (\w+) \|([^|]*)\|", DOCUMENT, re.MULTILINE)
    assert {name: (kind, re.findall(r"`(\w+)`", labels)) for name, kind, labels in rows} == exposed


def _with_capsule(name: str) -> HostStats:
    return msgspec.structs.replace(NOTHING, capsules={name: Usage(1, {}, 0.0, 0, 0, 0)})
