"""Services of a compose file as containers of a Pod: what they have, and what is refused."""

from __future__ import annotations

import pytest
import yaml

from securebench.benchmark.harbor.compose import read_compose
from securebench.benchmark.harbor.services import PLACE, served
from securebench.protocol.gateway import PROXY_NAME

TWO = """\
services:
  main:
    build: {context: "${CONTEXT_DIR}"}
    image: ${MAIN_IMAGE_NAME}
    command: ["sh", "-c", "sleep infinity"]
    volumes: ["${HOST_VERIFIER_LOGS_PATH}:${ENV_VERIFIER_LOGS_PATH}"]
    networks: [inner]
    depends_on:
      web: {condition: service_started}
  web:
    image: nginx:1
    command: nginx -g 'daemon off;'
    depends_on: [db]
    expose: ["8082/tcp"]
    user: "101"
    working_dir: /srv
    cpus: "0.5"
    mem_limit: 256m
    restart: always
  db:
    image: postgres:16
    entrypoint: [docker-entrypoint.sh]
    environment: {POSTGRES_PASSWORD: "a$$b", N: 1}
    volumes: [data:/var/lib/postgresql/data]
    ports: ["127.0.0.1:15432:5432", {target: 9000}]
    deploy: {resources: {limits: {cpus: 2, memory: 1.5G}}}
    healthcheck:
      test: pg_isready -U $$USER
      interval: 1m30s
      timeout: 500ms
      start_period: 5s
      retries: 2
volumes: {data: }
networks: {inner: }
"""


def reading(text):
    services, findings = read_compose(text, "f")
    assert not [each for each in findings if each.kind == "refused"]
    return served(services)


def test_services_start_in_the_order_in_which_they_wait_for_one_another():
    found = reading(TWO)
    assert found.findings == ()
    assert found.services == (
        {
            "name": "db",
            "image": "postgres:16",
            "entrypoint": ["docker-entrypoint.sh"],
            "env": {"POSTGRES_PASSWORD": "a$b", "N": "1"},
            "cpus": 2.0,
            "memory_mb": 1536.0,
            "healthcheck": {
                "command": ["/bin/sh", "-c", "pg_isready -U $USER"],
                "timeout_seconds": 0.5,
                "interval_seconds": 90.0,
                "start_period_seconds": 5.0,
                "retries": 2.0,
            },
        },
        {
            "name": "web",
            "image": "nginx:1",
            "command": ["nginx", "-g", "daemon off;"],
            "user": 101,
            "workdir": "/srv",
            "cpus": 0.5,
            "memory_mb": 256.0,
        },
    )


@pytest.mark.parametrize(
    ("test", "want"),
    [
        ("[CMD, redis-cli, ping]", ["redis-cli", "ping"]),
        ("[CMD-SHELL, redis-cli ping]", ["/bin/sh", "-c", "redis-cli ping"]),
        ("[NONE]", None),
    ],
)
def test_a_check_has_the_defaults_of_compose(test, want):
    (found,) = reading(f"services: {{a: {{image: r, healthcheck: {{test: {test}}}}}}}").services
    every = {"timeout_seconds": 30.0, "interval_seconds": 30.0, "start_period_seconds": 0.0}
    check = None if want is None else {"command": want, **every, "retries": 3}
    assert found.get("healthcheck") == check


REFUSED = {
    "name": ("my_db", {}, "", "must be one of a host"),
    "name of the proxy": (PROXY_NAME, {}, "", "must be one of a host"),
    "a build": ("a", {"image": None, "build": "."}, "build", "name a ready image"),
    "a template": ("a", {"image": "${X}"}, "image", "write the value"),
    "a variable": ("a", {"environment": {"A": "x$Y"}}, "environment", "write the value"),
    "of the machine": ("a", {"environment": ["A"]}, "environment", "cannot give A"),
    "quotes": ("a", {"command": "sh -c 'x"}, "command", "do not match"),
    "a user": ("a", {"user": "postgres"}, "user", "write the number"),
    "a group": ("a", {"user": "1:2"}, "user", "write the number"),
    "a limit": ("a", {"mem_limit": "much"}, "mem_limit", "must be a size"),
    "cpus": ("a", {"cpus": "two"}, "cpus", "must be a number"),
    "replicas": ("a", {"deploy": {"replicas": 2}}, "deploy", "one container"),
    "a duration": (
        "a",
        {"healthcheck": {"test": "x", "interval": "soon"}},
        "healthcheck.interval",
        "must be a duration",
    ),
    "no test": ("a", {"healthcheck": {"interval": "5s"}}, "healthcheck", "write its `test`"),
    "a list": ("a", {"healthcheck": {"test": ["x"]}}, "healthcheck.test", "must begin with"),
    "read_only": ("a", {"read_only": True}, "read_only", "cannot have it"),
    "links": ("a", {"links": ["b:c"]}, "links", "cannot have it"),
    "aliases": ("a", {"networks": {"n": {"aliases": ["x"]}}}, "networks", "by its own name"),
    "extra_hosts": ("a", {"extra_hosts": ["x:1.2.3.4"]}, "extra_hosts", "cannot have it"),
    "main first": ("a", {"depends_on": ["main"]}, "depends_on", "starts behind all"),
    "an end": (
        "a",
        {"depends_on": {"b": {"condition": "service_completed_successfully"}}},
        "depends_on.b",
        "is not possible",
    ),
    "ports": ("a", {"ports": ["3000-3005"]}, "ports", "single ports"),
    "udp": ("a", {"expose": ["53/udp"]}, "ports", "single ports"),
    "a port": ("a", {"ports": ["80:5000"]}, "ports", "5000 is also that of b"),
    "the proxy's": ("a", {"expose": [8080]}, "ports", "8080 is also that of the egress proxy"),
    "a volume": ("a", {"volumes": ["d:/x"]}, "volumes", "d cannot be shared with b"),
}


@pytest.mark.parametrize(("name", "keys", "key", "words"), REFUSED.values(), ids=REFUSED)
def test_what_a_container_would_not_have_is_refused(name, keys, key, words):
    other = {"image": "b", "ports": [5000], "volumes": ["d:/d"]}
    file = {"services": {"b": other, name: {"image": "i", **keys}}, "volumes": {"d": {}}}
    findings = reading(yaml.safe_dump(file, sort_keys=False)).findings
    place = f"services.{name}.{key}".rstrip(".")
    assert [each for each in findings if each.key == place and words in each.reason], findings


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"environment": {"A": "1"}}, "environment"),
        ({"image": "own:1"}, "image"),
        ({"command": "serve"}, "command"),
        ({"volumes": ["d:/d"]}, "volumes"),
        ({"ports": ["80:80"]}, "ports"),
    ],
)
def test_main_is_what_the_task_says(keys, key):
    file = {"services": {"main": keys}, "volumes": {"d": {}}}
    (finding,) = reading(yaml.safe_dump(file)).findings
    assert (finding.key, finding.file) == (f"services.main.{key}", PLACE)


def test_a_service_that_must_be_healthy_says_how():
    text = "services: {a: {image: x}, b: {image: y, depends_on: {a: {condition: service_healthy}}}}"
    (finding,) = reading(text).findings
    assert (finding.key, "b waits" in finding.reason) == ("services.a.healthcheck", True)


def test_a_circle():
    text = "services: {a: {image: x, depends_on: [b]}, b: {image: y, depends_on: [a]}}"
    (finding,) = reading(text).findings
    assert "in a circle" in finding.reason
