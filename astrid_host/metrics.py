"""A host's counts as Prometheus metrics, made from `HostStats` when somebody scrapes.

Names are Astrid's where it counts the same thing, and `astrid_...` otherwise. There are as many series as `HostStats` has
entries: nothing is remembered from one scrape to the next. Importing this module needs `prometheus-client`, which the extra
`astrid-host[metrics]` brings; without it the import raises a `ModuleNotFoundError` that says so.

`serve` answers scrapes on threads of its own. A scrape that fails is logged and answered with 500, and the next one is tried
again; one that is under way when serving ends is cut off.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from socketserver import TCPServer, ThreadingMixIn
from threading import Thread
from typing import TYPE_CHECKING, Any, ClassVar
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from astrid_host import __version__
from astrid_host.stats import HostStats, Usage

try:
    from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "metrics need prometheus-client, which is not installed: pip install 'astrid-host[metrics]'", name=missing.name
    ) from missing

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

log = logging.getLogger("astrid_host.metrics")
MOST_CONNECTIONS = 16
IDLE_S = 5.0  # a connection that neither sends nor reads for so long is given up
LOOKS_EACH_S = 0.1  # how often the accepting thread looks whether it shall end


class HostCollector:
    """A collector for a `CollectorRegistry`: asks for the counts at each scrape.

    Args:
        stats: `host.stats`, or anything that gives counts. It is called on the thread that scrapes.
    """

    def __init__(self, stats: Callable[[], HostStats]) -> None:
        self._stats = stats

    def collect(self) -> Iterable[Metric]:
        """The metrics as of now. Raises what `stats` raises."""
        return families(self._stats())


def families(stats: HostStats) -> Iterator[Metric]:
    """All metrics of a host.

    Args:
        stats: the counts.

    Returns:
        each metric once, always all of them; a metric by label has as many samples as there are entries, maybe none.
    """
    yield InfoMetricFamily("astrid_build", "What runs.", value={"version": __version__})
    yield _counter("bus_events_published", "Events published, the kernel's own included.", stats.events)
    yield _counter("bus_published_bytes", "Bytes of the payloads of published events.", stats.bytes)
    yield _counters("bus_receiver_lagged", "Events that a broadcast receiver missed.", "subscriber", stats.lagged)
    yield _counters(
        "bus_subscription_dropped", "Events that a subscription gave up for newer ones.", "pattern", stats.dropped
    )
    yield _counters("dispatch_failures", "Events that were not handled well.", "reason", stats.failures)
    yield _counter("dispatch_kernel_events_refused", "Kernel events that a full queue refused.", stats.kernel_refused)
    yield _gauge("dispatch_queues", "Queues, over all capsules and principals.", stats.queues)
    yield _gauge("dispatch_queued_events", "Events that wait in these queues.", stats.queued)
    yield from _quarantine(stats)
    yield _gauge("guest_instances", "Instances of guests, waiting ones included.", stats.instances)
    yield _gauge("guest_instances_waiting", "Guests that wait for something, on no thread.", stats.waiting)
    yield from _usage("capsule", stats.capsules)
    yield from _usage("principal", stats.principals)


def _quarantine(stats: HostStats) -> Iterator[Metric]:
    yield _gauge("dispatch_quarantined", "Capsules in quarantine, once for each principal.", len(stats.quarantined))
    remaining = GaugeMetricFamily(
        "astrid_dispatch_quarantine_remaining_seconds",
        "How long a capsule is still not called for a principal, because it trapped too often.",
        labels=["capsule", "principal"],
    )
    for held in stats.quarantined:
        remaining.add_metric([held.capsule, held.principal], held.seconds)
    yield remaining


def _usage(owner: str, usages: Mapping[str, Usage]) -> Iterator[Metric]:
    """What each capsule did, or what was done for each principal: `owner` is the label, and a part of the names."""

    def total(name: str, text: str, of: Callable[[Usage], float]) -> Metric:
        return _counters(f"{owner}_{name}", text, owner, {key: of(usage) for key, usage in usages.items()})

    yield total("calls", "Calls of guests that have ended, well or not.", lambda usage: usage.calls)
    failures = CounterMetricFamily(
        f"astrid_{owner}_failures", "Calls of guests that did not end well.", labels=[owner, "reason"]
    )
    for key, usage in usages.items():
        for reason, count in usage.failures.items():
            failures.add_metric([key, reason], count)
    yield failures
    yield total(
        "cpu_seconds", "Seconds that guests computed, host functions included.", lambda usage: usage.cpu_seconds
    )
    yield total("events_published", "Events that guests published.", lambda usage: usage.events)
    yield total("published_bytes", "Bytes of the payloads of these events.", lambda usage: usage.bytes)
    peak = GaugeMetricFamily(
        f"astrid_{owner}_peak_memory_bytes", "The most memory that one instance had.", labels=[owner]
    )
    for key, usage in usages.items():
        peak.add_metric([key], usage.peak_memory_bytes)
    yield peak


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"astrid_{name}", text, value)


def _counters(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(f"astrid_{name}", text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"astrid_{name}", text, value)


@contextmanager
def serve(stats: Callable[[], HostStats], host: str, port: int) -> Generator[str]:
    """Answer scrapes over HTTP, until the body ends: the metrics of a host, and of this process as `process_...`.

    Leaving blocks until all threads of the server have ended, for a tenth of a second or so, and frees the port. It does not
    wait for readers.

    Args:
        stats: `host.stats`. It is called on threads of the server, by several at once if several scrape.
        host: a name or an address of this machine, IPv4 or IPv6 (without brackets).
        port: 0 takes any that is free.

    Returns:
        the URL that it serves at.

    Raises:
        OSError: it cannot listen there; the message names the place and the reason.
    """
    # Our collectors name no metrics beforehand; with this a scrape can still ask for some by `?name[]=`.
    registry = CollectorRegistry(support_collectors_without_names=True)
    registry.register(HostCollector(stats))
    ProcessCollector(registry=registry)
    server = _listen(host, port, _answering(registry))
    accepting = Thread(target=server.serve_forever, args=(LOOKS_EACH_S,), name="astrid-metrics", daemon=True)
    accepting.start()
    try:
        yield f"http://{_place(host, server.server_port)}/metrics"
    finally:
        server.shutdown()
        server.cut_off()
        server.server_close()
        accepting.join()


def _answering(registry: CollectorRegistry) -> WSGIApplication:
    """The client's application; what it raises goes to the log, and not as a traceback to stderr."""
    application: WSGIApplication = make_wsgi_app(registry)

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        try:
            return application(environ, start_response)
        except Exception:
            log.exception("a scrape failed")
            start_response("500 Internal Server Error", [("Content-Type", "text/plain; charset=utf-8")])
            return [b"the metrics could not be read; the host's log says why\n"]

    return answer


def _listen(host: str, port: int, application: WSGIApplication) -> _Server:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return _Server(family, address, application)
    except OSError as error:
        reason = error.strerror or str(error)
        raise OSError(
            f"metrics cannot be served at {_place(host, port)}: {reason}; give another address, or port 0 for any free one"
        ) from error


def _place(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class _Request(WSGIRequestHandler):
    """One connection, which is one request. It says nothing on stderr."""

    timeout: ClassVar[float | None] = IDLE_S

    def log_message(self, *message: Any) -> None:
        """Nothing: stderr is for the host's log, and there is nothing to log of a scrape."""


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each connection, all of which can be ended: the standard one waits for readers, or forgets its threads."""

    daemon_threads = False
    request_queue_size = MOST_CONNECTIONS
    allow_reuse_port = False  # or two hosts would share a port, and scrapes reach now one and now the other

    def __init__(self, family: socket.AddressFamily, address: Any, application: WSGIApplication) -> None:
        self.address_family = family
        self._open: set[socket.socket] = set()
        super().__init__(address, _Request)
        self.set_app(application)

    def server_bind(self) -> None:
        """Without the base's look-up of a name for the address, which may take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Take a new connection, unless there are too many."""
        if len(self._open) >= MOST_CONNECTIONS:
            return False
        self._open.add(request)
        return True

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that went away or fell asleep is no fault."""
        log.debug("a scrape was given up", exc_info=True)

    def cut_off(self) -> None:
        """End the connections that are open, so that their threads end; none may be accepted any more."""
        for request in list(self._open):
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)
