"""Metrics of a server in the text format of Prometheus."""

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client import disable_created_metrics as without_created
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from starlette.requests import Request
from starlette.responses import Response

_WAITS = (0.1, 0.5, 1, 5, 15, 60, 300, 1800)


class Figures:
    """Counts requests by path and status, measures waiting times, and reads other values from `gauges`.

    The keys of `gauges()` have the form `name` or `name/label=value`. A name that ends in _total is a
    counter.
    """

    def __init__(self, server: str, gauges: Callable[[], Mapping[str, float]]) -> None:
        without_created()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self._gauges, self._prefix = gauges, f"swelab_{server}"
        self._requests = Counter(
            f"{self._prefix}_requests", "answered requests", ["path", "status"], registry=self._registry
        )
        self.waited = Histogram(
            f"{self._prefix}_wait_seconds",
            "from asking to having a sandbox",
            buckets=_WAITS,
            registry=self._registry,
        )
        self._registry.register(self)

    def count_answer(self, path: str, status: int) -> None:
        """Counts one response."""
        self._requests.labels(path, str(status)).inc()

    def collect(self) -> Iterable[GaugeMetricFamily | CounterMetricFamily]:
        """Returns the metric families, as prometheus_client requires of a collector."""
        families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}
        for full, value in self._gauges().items():
            name, _, pair = full.partition("/")
            label, _, shown = pair.partition("=")
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            labels = [label] if label else []
            family = families.setdefault(name, kind(f"{self._prefix}_{name}", name, labels=labels))
            family.add_metric([shown] if label else [], value)
        return families.values()

    async def page(self, request: Request) -> Response:
        """Responds to GET /metrics."""
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)
