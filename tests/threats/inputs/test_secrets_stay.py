"""Secrets stay where they belong: real agents ran, then everything that was kept is searched.

Planted are a provider's key and a value that the tester exposes. They may lie in their Secrets;
the second besides in the memory of the agent that has it. The search covers all objects of the
namespace, every state of every Pod, the logs of all containers, and the whole volume.
"""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest

from support.outside_release import PROVIDER_SECRET, key, outside_release, overlays
from support.release import (
    DATA,
    ROOT,
    RUN_SECONDS,
    CommandError,
    Raw,
    Record,
    Release,
    benchmark_run,
    call,
    condition,
    keyed_pack,
)
from threats.kit.batch import RUN_AGENT, Batch, Trial
from threats.kit.canaries import PREFIX, SEARCH, canary, hits
from threats.kit.cells import containers, text
from threats.kit.outcomes import not_prepared
from threats.kit.podlog import PodLog, watched

LISTED = "allowed.test"
EXPOSED = canary()
EXPOSED_SECRET = "exposed-token"
USABLE = {"securebench.dev/usable-by-runs": "true"}
GO_EARLY = ("-l", "securebench.dev/role in (gateway, canary, control)")
"""Pods that are gone when their run has ended, whatever its retention says."""
KEY_BEGIN = 12
"""Characters of the key that the agent's own search knows, in two parts."""

MEMORY = """
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb") as memory:
            for line in maps:
                words = line.split()
                if not words[1].startswith("rw") or len(words) > 5 and words[5].startswith("/"):
                    continue
                begin, end = (int(place, 16) for place in words[0].split("-"))
                memory.seek(begin)
                data = memory.read(min(end - begin, 1 << 26))
                found += search(f"memory of {pid}", data) if pid != str(os.getpid()) else []
    except (OSError, ValueError, OverflowError):
        pass
"""
"""Goes on after the kit's search: the written memory of every process that it may read."""


def seeking(begin: str) -> str:
    """Return a program that prints where a secret with this beginning can be read."""
    half = len(begin) // 2
    words = f"{(begin[:half], begin[half:])!r}"
    assert SEARCH.count('"-".join(') == 1
    start = SEARCH.index('"-".join(')
    end = SEARCH.index(")).encode()", start)
    program = SEARCH[:start] + f'"".join({words}' + SEARCH[end + 1 :]
    return f"{program}{MEMORY}\nprint(json.dumps(found))\n"


CALL = f"""\
import base64, os, urllib.request
key = os.environ["TOKEN"].encode()
opened = urllib.request.urlopen("http://docs.{LISTED}/", timeout=20)
print(opened.status)
for shown in (key, base64.b64encode(key), key.hex().encode(), key[::-1]):
    os.write(1, shown + b"\\n")
    os.write(2, shown + b"\\n")
"""
AGENT: Raw = {
    "harness": {"type": "codex", "config": {"model": "script-obey", "allowed_domains": [LISTED]}},
    "provider": {"secretRef": {"name": PROVIDER_SECRET}},
    "retention": {"pods": "All", "lanes": "Keep"},
    "isolation": {"require": "Verified"},
}
HAND_IN = 'open("answer.txt", "w").write("200")\n'
"""What is printed would be the candidate else, and a candidate stays as it is."""
COMMAND: Raw = {
    "harness": {
        "type": "command",
        "config": {
            "command": ["python3", "-c", RUN_AGENT],
            "allowed_domains": [LISTED],
            "artifact_path": "answer.txt",
        },
        "env": ["TOKEN"],
        "secretRef": {"name": EXPOSED_SECRET},
    },
    "retention": {"pods": "All", "lanes": "Keep"},
}
ANSWERS: Raw = {"accepted_answers": ["[]"]}
CODEX = Batch("stay-codex", "short_answer", spec=AGENT)
FORWARDED = Batch("stay-forwarded", "short_answer", spec=COMMAND)


def codex_trial() -> Trial:
    """Return a task whose text is a shell command: search for the key, hand in where it is."""
    program = seeking(key()[:KEY_BEGIN])
    return CODEX.task(
        "seek", agent=f"python3 - <<'END' > candidate.txt\n{program}END\n", grading=ANSWERS
    )


CALLS = FORWARDED.task("calls", agent=CALL + HAND_IN, grading={"accepted_answers": ["200"]})
FINDS = FORWARDED.task("finds", agent=seeking(PREFIX) + HAND_IN, grading=ANSWERS)


@dataclass(slots=True)
class Kept:
    """Everything that is there after the runs, by place.

    Attributes:
        release: Where they ran.
        logs: Of the containers that were seen, by Pod and container.
        places: All that is searched.
    """

    release: Release
    logs: dict[str, bytes] = field(default_factory=dict)
    places: dict[str, bytes] = field(default_factory=dict)

    def read_logs(self, *selector: str) -> None:
        """Read the logs of the containers that are there now."""
        words = ("get", "pods", *selector, "-o", "json")
        for pod in json.loads(self.release.kubectl(*words))["items"]:
            name = pod["metadata"]["name"]
            for container in containers(pod):
                words = ("logs", name, "-c", container["name"])
                try:
                    out = self.release.kubectl(*words).encode()
                except CommandError:
                    continue
                self.logs[f"log of {name}/{container['name']}"] = out

    def wait(self, *runs: str) -> None:
        """Wait for the end of the runs, and read the logs of all their Pods."""

        def is_over(seen: Raw) -> bool:
            self.read_logs(*GO_EARLY)
            return bool(condition(seen)["status"] != "Unknown")

        deadline = time.monotonic() + RUN_SECONDS
        for run in runs:
            left = deadline - time.monotonic()
            ended = condition(self.release.wait(run, is_over, left, step_seconds=1))
            assert ended["status"] == "True", ended
        self.read_logs()

    def record(self, run: str, task: str) -> Record:
        """Return a task's record."""
        return next(each for each in self.release.records(run) if each["task_id"] == task)

    def found(self, secret: str) -> Mapping[str, list[str]]:
        """Return the forms of a secret by the places where they are."""
        searched = {place: hits(data, secret) for place, data in self.places.items()}
        return {place: forms for place, forms in searched.items() if forms}


def begin(release: Release, batch: Batch, *trials: Trial) -> None:
    pack, source = keyed_pack(
        "ConfigMap", f"{batch.name}-pack", batch.pack([trial.row for trial in trials])
    )
    release.create(pack, benchmark_run(batch.name, {**batch.run_spec(), "pack": source}))


@pytest.fixture(scope="module")
def kept() -> Iterator[Kept]:
    """Both runs, and all that is left of them."""
    if not overlays():
        not_prepared("the overlay images of the agents were never built: run make overlays")
    subprocess.run([ROOT / "tests" / "outside" / "outside", "up"], check=True, timeout=120)
    with outside_release("sb-secrets") as release, watched(release.namespace) as pods:
        value = base64.b64encode(EXPOSED.encode()).decode()
        metadata = {"name": EXPOSED_SECRET, "labels": USABLE}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
        release.create({**secret, "data": {"TOKEN": value}})
        begin(release, CODEX, codex_trial())
        begin(release, FORWARDED, CALLS, FINDS)
        kept = Kept(release)
        kept.wait(CODEX.name, FORWARDED.name)
        kept.places = everything(kept, pods)
        yield kept


def everything(kept: Kept, pods: PodLog) -> dict[str, bytes]:
    """Return objects, states, logs and files, but for the two Secrets."""
    return {
        **{f"object {name}": data for name, data in objects(kept.release).items()},
        "states of Pods": text(pods.states()),
        **kept.logs,
        "the volume": volume(kept.release),
    }


def objects(release: Release) -> dict[str, bytes]:
    """Return all objects of the namespace, but for the two Secrets; other Secrets are opened."""
    kinds = call("kubectl", "api-resources", "--verbs=list", "--namespaced", "-o", "name")
    found: dict[str, bytes] = {}
    for kind in kinds.decode().split():
        try:
            items = json.loads(release.kubectl("get", kind, "-o", "json"))["items"]
        except CommandError:
            continue
        for item in items:
            name = item["metadata"]["name"]
            if kind == "secrets" and name in {PROVIDER_SECRET, EXPOSED_SECRET}:
                continue
            found[f"{kind}/{name}"] = text(item) + opened(item if kind == "secrets" else {})
    return found


def opened(secret: Raw) -> bytes:
    """Return the values of a Secret, those of Helm opened twice."""
    once = [base64.b64decode(value) for value in secret.get("data", {}).values()]
    is_helm = secret.get("type") == "helm.sh/release.v1"
    return b"\n".join(base64.b64decode(value) if is_helm else value for value in once)


def volume(release: Release) -> bytes:
    """Return the whole results volume as one archive."""
    program = (
        "import sys, tarfile; tarfile.open(fileobj=sys.stdout.buffer, mode='w|').add(sys.argv[1])"
    )
    return release.operator("python3", "-c", program, DATA)


def test_a_178_attack(kept: Kept) -> None:
    """The agent's own search, in environment, files, command lines and memory, finds no key."""
    record = kept.record(CODEX.name, "seek")

    assert record["candidate_text"].strip() == "[]"
    assert record["passed"] is True
    assert record["labels"]["credentials"] == "brokered"


def test_a_178_twin(kept: Kept) -> None:
    """The same search finds a value that the tester exposes: it is known to work."""
    seen = json.loads(kept.record(FORWARDED.name, "finds")["producer_stdout"])

    assert "environ" in seen
    assert any(place.startswith("/proc/") for place in seen)


def test_a_178_honest(kept: Kept) -> None:
    record = kept.record(CODEX.name, "seek")
    pods = json.loads(kept.release.kubectl("get", "pods", "-o", "json"))["items"]
    mounting = {
        pod["metadata"]["labels"].get("securebench.dev/role")
        for pod in pods
        if any(each.get("secret") for each in pod["spec"]["volumes"])
    }

    assert record["producer_metadata"]["provider_relay_requests"] >= 2
    assert mounting <= {"gateway"}


def test_the_provider_key_is_in_its_secret_only(kept: Kept) -> None:
    assert kept.found(key()) == {}


def test_an_exposed_value_is_in_its_secret_only(kept: Kept) -> None:
    """Although its agent printed it in four forms."""
    said = kept.record(FORWARDED.name, "calls")["producer_stdout"]

    assert said.endswith("200\n")
    assert said.count("*" * len(EXPOSED)) >= len(("plain", "hexadecimal", "reversed"))
    assert kept.found(EXPOSED) == {}


def test_everything_is_searched(kept: Kept) -> None:
    """A value that is planted in an object, a log or a file is found; the search is not blind."""
    secret = canary()
    release = kept.release
    metadata = {"name": "planted"}
    data = {"value": base64.b64encode(f"x{secret}".encode()).decode()}
    release.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    release.operator("sh", "-c", f"echo {secret[::-1]} > {DATA}/planted")
    with watched(release.namespace) as pods:
        planted = Kept(release, places=everything(kept, pods))

    assert set(planted.found(secret)) == {"object configmaps/planted", "the volume"}
    roles = {"gateway", "egress-proxy", "harness", "courier", "operator"}
    seen = {place.rpartition("/")[2] for place in kept.logs}
    assert roles <= seen
