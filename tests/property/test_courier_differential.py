"""The courier in Go leaves what the courier in Python leaves, byte for byte."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.loop import corpus_of
from fuzz.trees import BOUNDS, EXCLUDE, PATHS, TREE, Reader, build
from property.test_sealing import TREES, make
from securebench.core.errors import SpecError
from securebench.files.untrusted import UnreadableError
from securebench.protocol.bounds import CandidateBounds
from securebench.sandbox import courier as python
from support import courier as go

SECONDS = float(os.environ.get("DIFFERENTIAL_SECONDS", "5"))


def in_python(volumes: Path, spec: str) -> tuple[int, bytes]:
    log = volumes / "log"
    try:
        code = python.main(["--spec", spec], volumes=volumes, log=log, wait=lambda: None)
    except (OSError, SpecError, UnreadableError):
        code = 1
    return code, log.read_bytes() if log.exists() else b""


def left(volumes: Path) -> dict[str, bytes]:
    return {
        f"{folder}/{path.name}": path.read_bytes()
        for folder in ("candidate", "producer", "verification")
        for path in sorted((volumes / folder).iterdir())
        if not path.name.endswith(".new")
    }


def differ(volumes: Path, spec: str) -> bytes:
    """Run both on the same volumes and return the message."""
    found = {}
    for name, program in {"python": in_python, "go": go.run}.items():
        for folder in ("candidate", "producer", "verification"):
            shutil.rmtree(volumes / folder, ignore_errors=True)
            (volumes / folder).mkdir()
        (volumes / "log").unlink(missing_ok=True)
        first = tuple(program(volumes, spec)[:2])
        files = left(volumes)
        again = tuple(program(volumes, spec)[:2])
        assert again == first or first[0]
        assert left(volumes) == files
        found[name] = first, files
    assert found["go"] == found["python"]
    return found["go"][0][1]


def volumes_in(folder: str) -> Path:
    volumes = Path(folder)
    for name in ("workspace", "output", "outside"):
        (volumes / name).mkdir()
    (volumes / "outside/secret").write_text("secret of another")
    return volumes


def seal_spec(extraction: dict[str, object], bounds: CandidateBounds, **more: object) -> str:
    return json.dumps(
        {
            "version": 1,
            "mode": "seal",
            "extraction": extraction,
            "limits": asdict(bounds),
            "exclude": list(EXCLUDE),
            **more,
        }
    )


WORKSPACE = {"mode": "workspace", "path": None, "kind": "workspace"}


@settings(max_examples=150, deadline=None)
@given(tree=TREES)
def test_trees(tree) -> None:
    with tempfile.TemporaryDirectory() as folder:
        volumes = volumes_in(folder)
        for parts, (kind, content) in tree:
            make(volumes / "workspace", parts, kind, content)
        differ(volumes, seal_spec(WORKSPACE, CandidateBounds()))


def fuzzed(data: bytes) -> bytes:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        volumes = volumes_in(folder)
        reader = Reader(data)
        number = reader.byte() % (len(PATHS) + 1)
        build(reader, os.fsencode(volumes / "workspace"))
        extraction = WORKSPACE
        if number:
            extraction = {"mode": "file", "path": PATHS[number - 1], "kind": "code"}
        return differ(volumes, seal_spec(extraction, BOUNDS))


def test_corpus() -> None:
    for data in [*corpus_of(TREE), *TREE.seeds]:
        fuzzed(data)


@pytest.mark.timeout(SECONDS + 120)
def test_random_trees() -> None:
    rng = Random(str(SECONDS))  # noqa: S311 - no secret
    deadline = time.monotonic() + SECONDS
    seen = set()
    base = [*corpus_of(TREE), *TREE.seeds]
    while time.monotonic() < deadline:
        data = bytearray(rng.choice(base))
        for _ in range(rng.randrange(4)):
            at = rng.randrange(len(data) + 1)
            data[at : at + rng.randrange(3)] = rng.randbytes(rng.randrange(12))
        message = json.loads(fuzzed(bytes(data)))
        seen.add((message["problem"], message["message"], message["dropped_entries"]))
    assert len(seen) > 5


TEXTS = st.one_of(
    st.binary(max_size=60),
    st.text(max_size=40).map(str.encode),
    st.lists(
        st.sampled_from(
            [
                *(b"a", b"\n", b"\0", "é".encode(), "€".encode(), "😀".encode(), b"\xff", b"\x80"),
                *(b"\xe2\x82", b"\xed\xa0", b"\xf0\x9f\x98", b"\xf4\x90"),
            ]
        ),
        max_size=30,
    ).map(b"".join),
)
REPORTS = st.one_of(
    st.none(),
    st.binary(max_size=20),
    st.dictionaries(
        st.sampled_from(["stdout_bytes", "stderr_bytes", "error"]),
        st.one_of(st.integers(-5, 300), st.booleans(), st.floats(), st.text(max_size=5), st.none()),
    ).map(lambda fields: json.dumps(fields).encode()),
    st.sampled_from(
        [
            b'{"stdout_bytes":5,"stdout_bytes":6}',
            b'{"a":"\\ud800","stdout_bytes":99}',
            b'{"a":"\\ud83d\\ude00","stdout_bytes":99}',
            b'{"stdout_bytes":1e2}',
            b'{"stdout_bytes":9,"x":1e400}',
            b"[1]",
            b"x" * 9000,
        ]
    ),
)
CAPTURED = ["stdout", "stderr", "stdout.tail", "stderr.tail", "diff", "changed.json"]
ANSWER = "sub/ü\n'answer"
EXTRACTIONS = st.sampled_from(
    [
        {"mode": "stdout", "path": None, "kind": "text"},
        {"mode": "stdout", "path": None, "kind": "patch"},
        {"mode": "git_diff", "path": None, "kind": "patch"},
        {"mode": "file", "path": ANSWER, "kind": "code"},
        {"mode": "unsupported", "path": None, "kind": "none"},
    ]
)


@settings(max_examples=400, deadline=None)
@given(
    streams=st.dictionaries(st.sampled_from(CAPTURED), TEXTS),
    report=REPORTS,
    extraction=EXTRACTIONS,
    answer=st.one_of(st.none(), TEXTS),
    limits=st.tuples(st.integers(0, 70), st.integers(0, 70), st.integers(0, 40)),
)
def test_streams_and_texts(streams, report, extraction, answer, limits) -> None:
    bounds = CandidateBounds(text_bytes=limits[0], patch_bytes=limits[1], stream_bytes=limits[2])
    with tempfile.TemporaryDirectory() as folder:
        volumes = volumes_in(folder)
        for name, content in streams.items():
            (volumes / "output" / name).write_bytes(content)
        if report is not None:
            (volumes / "output/report.json").write_bytes(report)
        if answer is not None:
            (volumes / "workspace/sub").mkdir()
            (volumes / f"workspace/{ANSWER}").write_bytes(answer)
        differ(volumes, seal_spec(extraction, bounds))
        collect = {"version": 1, "mode": "collect", "limits": asdict(bounds)}
        differ(volumes, json.dumps(collect))


def test_large_trees() -> None:
    with tempfile.TemporaryDirectory() as folder:
        volumes = volumes_in(folder)
        root = volumes / "workspace"
        for number in range(3000):
            path = root / f"{number % 7}-ü{number % 11}" / ("n" * (number % 240) + str(number))
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(os.urandom(number % 2000))
            path.chmod(0o755 if number % 3 else 0o600)
            if number % 5 == 0:
                path.with_name(f"l{number}").symlink_to("t" * (number % 200 + 1))
        (root / "large").write_bytes(os.urandom(3 << 20))
        (root / ("f" * 99)).mkdir()
        (root / ("g" * 100)).mkdir()
        (root / ("h" * 100)).write_text("x")
        (root / ("i" * 101)).write_text("x")
        differ(volumes, seal_spec(WORKSPACE, CandidateBounds()))


SPECS = st.sampled_from(["", "[]", "null", "{}"]) | st.text(max_size=20)


@settings(max_examples=60, deadline=None)
@given(spec=SPECS)
def test_specifications(spec) -> None:
    if "\0" in spec:
        return
    with tempfile.TemporaryDirectory() as folder:
        differ(volumes_in(folder), spec)
