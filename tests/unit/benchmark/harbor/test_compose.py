"""The compose file of a Harbor folder: services, and what a cluster cannot give them."""

import pytest

from securebench.benchmark.harbor.compose import Service, read_compose
from securebench.benchmark.harbor.config import FindingKind

GOOD = """\
services:
  main:
    build: .
    environment: [MODE=slow, FROM_OUTSIDE]
    volumes: ["${HOST_VERIFIER_LOGS_PATH}:${ENV_VERIFIER_LOGS_PATH}"]
    depends_on:
      db: {condition: service_healthy}
  db:
    image: postgres:16
    environment: {POSTGRES_PASSWORD: x, EMPTY: }
    healthcheck: {test: pg_isready}
    volumes: [data:/var/lib/data]
    container_name: db
volumes: {data: }
"""


def test_the_services_of_a_file():
    services, findings = read_compose(GOOD, "f")
    assert services == (
        Service(
            name="main",
            image="",
            build=True,
            environment={"MODE": "slow", "FROM_OUTSIDE": None},
            depends_on={"db": "service_healthy"},
            has_healthcheck=False,
        ),
        Service(
            name="db",
            image="postgres:16",
            build=False,
            environment={"POSTGRES_PASSWORD": "x", "EMPTY": None},
            depends_on={},
            has_healthcheck=True,
        ),
    )
    assert [(each.kind, each.key) for each in findings] == [
        (FindingKind.IGNORED, "services.db.container_name")
    ]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("privileged", "true"),
        ("cap_add", "[SYS_ADMIN]"),
        ("devices", "[/dev/fuse]"),
        ("pid", "host"),
        ("ipc", "host"),
        ("network_mode", "host"),
        ("network_mode", "container:other"),
        ("volumes", "[/:/host]"),
        ("volumes", "[./data:/data]"),
        ("volumes", "[~/x:/x]"),
        ("volumes", "['${PWD}/x:/x']"),
        ("volumes", "[{type: bind, source: ./x, target: /x}]"),
        ("volumes", "[{type: volume, source: /x, target: /x}]"),
        ("volumes", "['${HOST_OTHER:-/}:/x']"),
        ("volumes", "['${ENV_VERIFIER_LOGS_PATH:-/}:/x']"),
        ("volumes", "['x${HOST_ARTIFACTS_PATH}:/x']"),
        ("volumes", "[{source: '${HOST_ARTIFACTS_PATH}/..', target: /x}]"),
        ("volumes", "['a/../..:/x']"),
        ("build", ".."),
        ("build", "/"),
        ("build", "https://example.com/x.git"),
        ("build", "${HOME}"),
        ("build", "a/../../b"),
        ("build", "{context: ., dockerfile: ../tests/Dockerfile}"),
        ("build", "{dockerfile: /etc/passwd}"),
        ("security_opt", "[seccomp:unconfined]"),
        ("extends", "{service: x}"),
        ("depends_on", "[nobody]"),
    ],
)
def test_what_a_cluster_cannot_give(key, value):
    text = f"services:\n  main:\n    image: x\n    {key}: {value}\n"
    (finding,) = read_compose(text, "f").findings
    assert (finding.kind, finding.key, finding.line) == (
        FindingKind.REFUSED,
        f"services.main.{key}",
        4,
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("privileged", "false"),
        ("cap_add", "[]"),
        ("ipc", "private"),
        ("network_mode", "none"),
        ("volumes", "[/data]"),
        ("volumes", "['${HOST_ARTIFACTS_PATH:-./artifacts}:/logs/artifacts']"),
        ("volumes", "[{type: bind, source: '${HOST_AGENT_LOGS_PATH}', target: /x}]"),
        ("build", "."),
        ("build", "./main"),
        ("build", "a/../b"),
        ("build", "{context: '${CONTEXT_DIR}', dockerfile: Dockerfile.main, args: {A: b}}"),
        ("volumes", "[data:/data]"),
        ("volumes", "[{type: tmpfs, target: /x}]"),
        ("depends_on", "[main]"),
    ],
)
def test_what_is_no_part_of_the_node(key, value):
    text = f"services:\n  main:\n    image: x\n    {key}: {value}\n"
    assert read_compose(text, "f").findings == ()


@pytest.mark.parametrize(
    ("text", "want_key"),
    [
        ("volumes: {a: {external: true}}", "volumes.a"),
        ("volumes: {a: {driver: nfs}}", "volumes.a"),
        ("networks: {a: {driver_opts: {x: y}}}", "networks.a"),
        ("include: [other.yaml]", "include"),
        ("secrets: {a: {file: x}}", "secrets"),
    ],
)
def test_what_lies_outside_of_the_task(text, want_key):
    (finding,) = read_compose(f"services: {{main: {{image: x}}}}\n{text}\n", "f").findings
    assert (finding.kind, finding.key, finding.line) == (FindingKind.REFUSED, want_key, 2)


@pytest.mark.parametrize("text", ["", "[]", "services: []", "services: {}", "a: [", "a: 1\na: 2"])
def test_a_file_without_services_is_refused(text):
    services, (finding,) = read_compose(text, "f")
    assert services == ()
    assert finding.kind is FindingKind.REFUSED
    assert finding.line is not None


@pytest.mark.parametrize(
    "text", ["services: {main: {image: x, unheard: 1}}", "services: {main: {image: x}}\nunheard: 1"]
)
def test_an_unknown_key_is_a_remark(text):
    (finding,) = read_compose(text, "f").findings
    assert finding.kind is FindingKind.REMARK
    assert finding.key.endswith("unheard")


@pytest.mark.parametrize("key", ["ssh", "secrets", "network", "additional_contexts", "privileged"])
def test_a_build_gets_nothing_of_the_machine(key):
    text = f"services:\n  main:\n    build:\n      context: .\n      {key}: x\n"
    (finding,) = read_compose(text, "f").findings
    assert (finding.kind, finding.key, finding.line) == (
        FindingKind.REFUSED,
        f"services.main.build.{key}",
        5,
    )
