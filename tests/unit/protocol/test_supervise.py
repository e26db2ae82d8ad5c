"""What the operator tells supervise: both sides have the same fields, and read the same samples."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

from securebench.protocol.candidate import CandidateBounds, Extraction, ExtractionMode
from securebench.protocol.messages import DigestedPath, encode_spec
from securebench.protocol.supervise import (
    ArtifactSpec,
    CandidateSpec,
    CopySpec,
    CourierSpec,
    DiffSpec,
    EgressSpec,
    GatewayAddress,
    PatchField,
    Phase,
    ProbeSpec,
    RepositorySpec,
    RewardSpec,
    RootChangesSpec,
    RootSpec,
    RunSpec,
    SealSpec,
    StreamsSpec,
    SuperviseSpec,
    TargetSpec,
    Transfer,
)
from securebench.reference.go_structs import go_structs

SOURCES = Path(__file__).parents[3] / "images" / "supervise"
SAMPLES = SOURCES / "internal/specs/testdata/samples.json"
FIELD = re.compile(r'json:"(\w+)')
USAGE = re.compile(r"usage: supervise (\S+) --spec JSON")
PHASE = Phase(
    "check",
    ("sh", "-c", "x $Y"),
    "/w",
    timeout_seconds=1.5,
    env={"A": "b"},
    script=True,
    interpreter="bash",
    user=65530,
    proof="no proof",
    search=("/s",),
    ready=True,
    guarded=True,
    sources="compile",
)
PATCH = PatchField("/p.json", "patch")
FILE = DigestedPath("/f", "sha256:0")
TARGET = TargetSpec("dns", "10.96.0.10", 53, "udp")
SMALL_RUN = RunSpec(StreamsSpec("", 0, 0), "", (), 0, 0, phases=(Phase("harness", ("true",), ""),))
FULL_RUN = RunSpec(
    streams=StreamsSpec("/o", 1, 2),
    temporary="/tmp",
    probes=("10.96.0.1:443",),
    probe_timeout_seconds=20,
    max_processes=256,
    verdict=True,
    lanes=(FILE,),
    candidate=CandidateSpec("/c", "sha256:0", "/workspace"),
    copies=(Transfer("/a", "/b"),),
    protected=("/workspace/kept",),
    home="/home",
    repository=RepositorySpec(
        "/w", "/scratch", "0" * 40, 300, FILE, FILE, PATCH, PATCH, PATCH, PHASE
    ),
    prechecks=(PHASE,),
    phases=(PHASE,),
    holds="/h",
    needs="/n",
    needs_seconds=60,
    linger=True,
    once="/first",
    serves="/tests",
    open_modes=("/o",),
    awaits=("127.0.0.1:8080",),
    diff=DiffSpec("/w", "/scratch", 300, 10),
    reward=RewardSpec("/logs", ("reward.json",), 10),
)
ROOT_RUN = replace(
    SMALL_RUN,
    streams=StreamsSpec("/o", 1, 2),
    user="app",
    root=RootSpec(("/tests",), 100, 10, (ArtifactSpec("/app/out", ("*.pyc",)),)),
    changes=RootChangesSpec("/root.tar", "sha256:0", ("/tests",), ("bash",), "app", replaces=True),
)
CASES: tuple[SuperviseSpec, ...] = (
    CopySpec("/app", "/copy"),
    SMALL_RUN,
    FULL_RUN,
    ROOT_RUN,
    CourierSpec(CandidateBounds()),
    CourierSpec(CandidateBounds(), folders=("socket/first",)),
    *(
        CourierSpec(
            CandidateBounds(),
            SealSpec(
                Extraction(mode, "patch", "a" if mode is ExtractionMode.FILE else None),
                200,
                ("securebench",),
                live=True,
            ),
        )
        for mode in ExtractionMode
    ),
    EgressSpec(GatewayAddress("10.96.7.7", 8443), "/token", {"proxy": 8080}, 128, 60, 20),
    ProbeSpec("closed", 2, 2, 10, (TARGET,), (TargetSpec("api", "10.0.0.1", 443, "tcp"),)),
    ProbeSpec("open", 2, 2, 10, (TARGET,)),
)


def test_go_reads_these_samples() -> None:
    """The Go test of the same file reads each sample and writes it again, with nothing lost."""
    samples = [{"verb": case.verb, "spec": json.loads(encode_spec(case))} for case in CASES]
    if os.environ.get("SECUREBENCH_UPDATE_GOLDEN"):
        SAMPLES.write_text(json.dumps(samples, indent=1) + "\n")

    assert json.loads(SAMPLES.read_text()) == samples


def test_the_samples_have_every_field() -> None:
    assert {
        name for name in FIELD.findall(go_structs()) if f'"{name}": ' not in SAMPLES.read_text()
    } == set()


def test_a_field_may_be_missing_where_it_is_empty_by_default() -> None:
    spec = json.loads(encode_spec(CourierSpec(CandidateBounds(text_bytes=0))))

    assert spec["limits"]["text_bytes"] == 0
    assert "seal" not in spec


def test_every_verb_has_a_specification() -> None:
    (verbs,) = USAGE.findall((SOURCES / "main.go").read_text())

    assert {kind.verb for kind in get_args(SuperviseSpec)} == set(verbs.split("|"))


def test_specifications_survive_the_kubelet() -> None:
    text = encode_spec(CopySpec("/$$ $(TOKEN)", "/${HOME} ä\n"))

    assert "$" not in text
    assert text.isascii()
    assert json.loads(text) == {"version": 1, "source": "/$$ $(TOKEN)", "to": "/${HOME} ä\n"}
