"""Metrics that the operator serves, what dashboard and alerts ask for, and a real Prometheus."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import Counter, Gauge, Histogram

from securebench.controller import health, metrics, process
from support.release import call
from support.servers import START_SECONDS, free_port, serving

DASHBOARD = Path(__file__).parents[2] / "charts" / "securebench" / "dashboards" / "securebench.json"
MONITORING = "templates/monitoring.yaml"
RATE_INTERVAL = "$__rate_interval"
"""Grafana's variable for a range that holds enough samples."""


class Metric:
    """A metric as Prometheus documents it.

    Args:
        collector: Of the operator.
    """

    def __init__(self, collector: Counter | Gauge | Histogram) -> None:
        (described,) = collector.describe()
        self.kind = described.type
        self.name = described.name + ("_total" if self.kind == "counter" else "")
        self.labels: tuple[str, ...] = collector._labelnames

    @property
    def series(self) -> set[str]:
        """Names of its time series."""
        if self.kind == "histogram":
            return {f"{self.name}_{part}" for part in ("bucket", "sum", "count")}
        return {self.name}


def served() -> list[Metric]:
    """Return the metrics of the operator's modules; requests come from a collector of their own."""
    modules = (health, process, metrics)
    values = [value for module in modules for value in vars(module).values()]
    collectors = {id(value): value for value in values if isinstance(value, Counter | Gauge)}
    histograms = {id(value): value for value in values if isinstance(value, Histogram)}
    return [Metric(each) for each in (*collectors.values(), *histograms.values())]


REQUESTS = "securebench_api_requests_total"
"""Served by ``health.RequestCollector`` from the cluster's own counts."""


def served_series() -> set[str]:
    """Return the names of all time series that the operator serves."""
    return {REQUESTS}.union(*(metric.series for metric in served()))


def dashboard_panels() -> list[dict[str, Any]]:
    """Return the panels of the dashboard, as Grafana has them."""
    panels: list[dict[str, Any]] = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    return panels


def dashboard_expressions() -> list[str]:
    """Return what the panels of the dashboard ask for."""
    return [target["expr"] for panel in dashboard_panels() for target in panel["targets"]]


def alert_groups(namespace: str) -> list[dict[str, Any]]:
    """Return the groups of the PrometheusRule that the chart makes; needs helm."""
    values = "metrics.enabled=true,metrics.alerts=true"
    chart = str(DASHBOARD.parents[1])
    words = ("helm", "template", "x", chart, "-n", namespace, "-s", MONITORING, "--set", values)
    rule = yaml.safe_load(call(*words))
    groups: list[dict[str, Any]] = rule["spec"]["groups"]
    return groups


def alert_expressions(groups: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what the alerts of a PrometheusRule ask for."""
    return [rule["expr"] for group in groups for rule in group["rules"]]


def named_series(expressions: Sequence[str]) -> set[str]:
    """Return the names of our time series in expressions."""
    return set(re.findall(r"securebench_\w+", " ".join(expressions)))


class Prometheus:
    """A running server.

    Args:
        port: On the loopback.
    """

    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}"

    def get(self, path: str, **query: str) -> Any:
        """Return the data of an answer of its API."""
        words = urllib.parse.urlencode(query)
        url = f"{self._base}{path}?{words}"
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310  # of this machine
            return json.load(answer)["data"]

    def value(self, expression: str) -> float | None:
        """Return the first value of an expression now, or None without any."""
        found = self.get("/api/v1/query", query=expression)["result"]
        return float(found[0]["value"][1]) if found else None

    def wait(self, expression: str, at_least: float, seconds: float = START_SECONDS) -> None:
        """Return once an expression has so high a value."""
        deadline = time.monotonic() + seconds
        while (value := self.value(expression)) is None or value < at_least:
            assert time.monotonic() < deadline, f"{expression} is {value}, not {at_least}"
            time.sleep(0.25)


@contextmanager
def forwarded(namespace: str, pod: str, port: int) -> Iterator[str]:
    """Forward a port of a Pod; yield host and port on this machine."""
    words = ["kubectl", "-n", namespace, "port-forward", f"pod/{pod}", f":{port}"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as forward:
        try:
            assert forward.stdout is not None
            found = re.match(r"Forwarding from (127\.0\.0\.1:\d+) ", forward.stdout.readline())
            assert found is not None
            yield found[1]
        finally:
            forward.terminate()


@contextmanager
def prometheus(
    folder: Path, target: str, namespace: str, groups: Sequence[Mapping[str, Any]]
) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes one target every second and evaluates rules.

    Args:
        folder: For its files.
        target: Host and port.
        namespace: Label of the target, as a ServiceMonitor would set it.
        groups: Of a PrometheusRule.
    """
    rules, config = folder / "rules.yaml", folder / "prometheus.yaml"
    rules.write_text(yaml.safe_dump({"groups": list(groups)}), encoding="utf-8")
    scraped = {"targets": [target], "labels": {"namespace": namespace}}
    body = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": [{"job_name": "securebench", "static_configs": [scraped]}],
    }
    config.write_text(yaml.safe_dump(body), encoding="utf-8")
    port = free_port()
    words = [
        "prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
    ]  # fmt: skip
    with serving(words, lambda: _is_ready(port)):
        yield Prometheus(port)


def _is_ready(port: int) -> bool:
    # The port is open before the database is: until then queries get 503, and so does this path.
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=5).close()
    except OSError:
        return False
    return True
