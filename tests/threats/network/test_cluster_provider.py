"""F9 on the node: a model behind a Service of the cluster, reached as far as the list opens it."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from outside import places
from support.outside_release import outside_release
from support.release import ROOT, Raw, Record, Release, benchmark_run, call, keyed_pack, namespace

MODEL_PORT = 8000
LISTED_PORT, SHUT_PORT = 80, 81
"""Of one Service: the entry for the second port names another namespace than that of its Pods."""
IMAGE = "python:3.11-slim"
SERVER = f"""\
import json
from http.server import BaseHTTPRequestHandler, HTTPServer

class Model(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        message = {{"role": "assistant", "content": "Answer: 42"}}
        choice = {{"index": 0, "message": message, "finish_reason": "stop"}}
        usage = {{"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}}
        data = json.dumps({{"choices": [choice], "usage": usage}}).encode()
        self.send_response(200 if self.path == "/v1/chat/completions" else 404)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

HTTPServer(("", {MODEL_PORT}), Model).serve_forever()
"""
PAGE = (ROOT / "docs/reference/own-agent.md").read_text(encoding="utf-8")
RECIPE: Raw = yaml.safe_load(re.findall(r"(?s)```yaml\n(.*?)```", PAGE)[0])["harness"]
MANIFEST = f"""\
id: inside
version: 1
defaults: {{family: short_answer, environment: {{image: "{IMAGE}", timeout_seconds: 60}}}}
"""
ROW = {"id": "six", "input": {"question": "6 * 7?"}, "eval": {"accepted_answers": [42]}}
SECONDS = 300


def model(place: str) -> list[Raw]:
    """Return the Pod and the Service of a model."""
    metadata = {"name": "model", "namespace": place, "labels": {"app": "model"}}
    container = {"name": "model", "image": IMAGE, "command": ["python3", "-c", SERVER]}
    ready = {"tcpSocket": {"port": MODEL_PORT}, "periodSeconds": 1}
    ports = [
        {"name": f"p{port}", "port": port, "targetPort": MODEL_PORT}
        for port in (LISTED_PORT, SHUT_PORT)
    ]
    pod = {"containers": [{**container, "readinessProbe": ready}]}
    service = {"clusterIP": places.CLUSTER_SERVICE, "selector": {"app": "model"}, "ports": ports}
    return [
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod},
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service},
    ]


@pytest.fixture(scope="module")
def place() -> Iterator[Release]:
    """A release whose administrator lists the model, beside it the model."""
    subprocess.run([ROOT / "tests" / "outside" / "outside", "up"], check=True, timeout=120)
    with namespace("sb-models") as models:
        for each in model(models):
            call("kubectl", "create", "-f", "-", stdin=json.dumps(each).encode())
        rules = [
            {"host": places.INSIDE, "port": port, "namespace": there, "podPort": MODEL_PORT}
            for port, there in ((LISTED_PORT, models), (SHUT_PORT, "kube-system"))
        ]
        wanted = {"settings.gateway.providers": rules, "settings.gateway.connectSeconds": 3}
        with outside_release("sb-inside", wanted) as installed:
            call("kubectl", "-n", models, "wait", "--for=condition=Ready", "pod/model")
            yield installed


def begin(release: Release, name: str, url: str) -> None:
    rows = json.dumps(ROW).encode() + b"\n"
    pack, source = keyed_pack(
        "ConfigMap", f"{name}-pack", {"manifest.yaml": MANIFEST.encode(), "tasks.jsonl": rows}
    )
    config: dict[str, Any] = {**RECIPE["config"], "provider": {"url": url}}
    harness = {"type": "command", "config": config}
    spec = {"pack": source, "harness": harness, "providerRetries": 0}
    release.create(pack, benchmark_run(name, spec))


@pytest.fixture(scope="module")
def records(place: Release) -> dict[str, Record]:
    """The record of a run by the listed port, and of one whose policy opens another namespace."""
    urls = {
        "listed": f"http://{places.INSIDE}/v1",
        "shut": f"http://{places.INSIDE}:{SHUT_PORT}/v1",
    }
    for name, url in urls.items():
        begin(place, name, url)
    for name in urls:
        place.wait_ended(name, SECONDS)
    return {name: place.records(name)[0] for name in urls}


def test_a_391_attack_by_another_namespace(records: dict[str, Record]) -> None:
    record = records["shut"]
    assert (record["outcome"], record["failure_reason"]) == ("provider", "provider_unavailable")


def test_a_391_honest_run_in_the_cluster(records: dict[str, Record]) -> None:
    record = records["listed"]
    assert (record["outcome"], record["passed"]) == ("scored", True)
    usage = record["producer_metadata"]["usage"]
    assert (usage["requests"], usage["input_tokens"], usage["output_tokens"]) == (1, 7, 3)
