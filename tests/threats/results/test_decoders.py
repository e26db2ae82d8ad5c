"""F4: odd JSON is an error for every reader, and a stream that ends early is no answer."""

from __future__ import annotations

import asyncio
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, NamedTuple

import pytest

from securebench.benchmark.files.bundle import BundleLimits, BundleReceipt, write_bundle
from securebench.client.run_start import Binding, left_out_lines
from securebench.client.run_summary import localized_summary, parse_summary
from securebench.client.volume import ExecResult, OperatorLink
from securebench.controller.exec_io import Streams, Volume, serve
from securebench.controller.volume.journal import encode_all, first_link, read_entries
from securebench.errors import SecureBenchError, TransientClusterError
from securebench.run.observe import termination
from securebench.run.records.reading import record_key
from support import courier
from support.build import seal_message, text_message
from support.exec_socket import SUCCESS, Socket, execute
from support.journal_entries import ENTRIES, UID

ODD: dict[str, Callable[[str, str], str]] = {
    "duplicate key": lambda text, key: f'{{"{key}":{json.dumps(json.loads(text)[key])},{text[1:]}',
    "other case": lambda text, key: text.replace(f'"{key}"', f'"{key.capitalize()}"'),
    "NaN": lambda text, _: f'{{"odd":NaN,{text[1:]}',
    "too large": lambda text, _: f'{{"odd":1e400,{text[1:]}',
    "byte-order mark": lambda text, _: "\ufeff" + text,
    "trailing": lambda text, _: text + "{}",
    "second object": lambda text, _: text + text,
}


class Decoder(NamedTuple):
    """One reader of results.

    Args:
        text: What it reads when all is well.
        key: A field that it needs.
        read: Fails for what it does not take.
    """

    text: str
    key: str
    read: Callable[[str], object]


BINDING = Binding("run", "sha256:p", "sha256:h", "1")
RECORD = {
    **BINDING._asdict(),
    "task_id": "a",
    "attempt": 1,
    "verification_status": "passed",
    "outcome": "scored",
}
SUMMARY = {
    "run_id": "run",
    "total": 1,
    "verified": 1,
    "passed": 1,
    "score_sum": 1.0,
    "verification_status": "complete",
}
COLLECT = {
    "version": 1,
    "limits": {
        "text_bytes": 1,
        "patch_bytes": 1,
        "workspace_bytes": 1,
        "workspace_files": 1,
        "stream_bytes": 1,
    },
}


def _local(text: str) -> None:
    path = Path("candidates.jsonl")
    path.write_text(text + "\n", encoding="utf-8")
    if left_out_lines(path, BINDING, {record_key(RECORD): RECORD}):
        raise ValueError("the line does not count")


def _courier(text: str) -> None:
    for name in ("output", "verification"):
        Path(name).mkdir(exist_ok=True)
    ended = courier.run(Path.cwd(), text)
    if ended.code:
        raise ValueError(ended.said)


def _answer(text: str) -> None:
    async def run(_command: object, _stdin: object) -> ExecResult:
        return ExecResult(0, b"", text.encode() + b"\n")

    if not asyncio.run(OperatorLink(run).show_pack("p")):
        raise ValueError("no answer")


def _journal(text: str) -> None:
    lines, _ = encode_all(ENTRIES[:2], first_link(UID))
    body = lines.splitlines()[0].split(b" ", 2)[2]
    read_entries(lines.replace(body, text.encode()), UID)


DECODERS = {
    "operator, verdict": Decoder(text_message(), "passed", termination.text_verdict),
    "operator, candidate": Decoder(
        seal_message(), "v", lambda text: termination.sealed_candidate(text, 1)
    ),
    "operator, streams": Decoder('{"v":1,"stdout":{}}', "v", termination.collected_streams),
    "courier": Decoder(json.dumps(COLLECT), "version", _courier),
    "command line, answer": Decoder('{"ok":true,"present":false}', "ok", _answer),
    "command line, summary": Decoder(
        json.dumps(SUMMARY),
        "passed",
        lambda text: parse_summary(localized_summary(text.encode(), Path())),
    ),
    "resume, records": Decoder(json.dumps(RECORD), "outcome", _local),
    "resume, journal": Decoder(
        encode_all(ENTRIES[:1], first_link(UID))[0].decode().strip().split(" ", 2)[2],
        "type",
        _journal,
    ),
}


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.short
@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("decoder", DECODERS)
def test_a_068_attack(decoder: str, odd: str) -> None:
    reader = DECODERS[decoder]
    text = ODD[odd](reader.text, reader.key)

    assert text != reader.text
    with pytest.raises((ValueError, SecureBenchError)):
        reader.read(text)


@pytest.mark.parametrize("field", ["Passed", "PASSED", "verdict"])
def test_a_068_attack_by_a_second_verdict(field: str) -> None:
    with pytest.raises(termination.BadMessageError, match=f"unknown fields: {field}"):
        termination.text_verdict(text_message(passed=False, **{field: True}))


@pytest.mark.parametrize("odd", [odd for odd in ODD if odd != "other case"])
def test_a_068_twin(odd: str) -> None:
    text = ODD[odd](text_message(passed=True), "passed")
    value, _ = json.JSONDecoder().raw_decode(text.removeprefix("\ufeff"))

    assert value["passed"] is True


def test_a_068_twin_other_case() -> None:
    text = ODD["other case"](text_message(passed=True), "passed")
    value = {key.lower(): item for key, item in json.loads(text).items()}

    assert value["passed"] is True


@pytest.mark.short
@pytest.mark.parametrize("decoder", DECODERS)
def test_a_068_honest(decoder: str) -> None:
    DECODERS[decoder].read(DECODERS[decoder].text)


# Streams that end early

CANDIDATES = b'{"task_id": "a", "passed": true}\n{"task_id": "b", "passed": false}\n'
LIMITS = BundleLimits(files=10, size_bytes=1 << 20)


class Far:
    """The operator's end of the exec protocol, behind a connection that breaks.

    Args:
        root: The volume.
        stream: Which of stdin, stdout and stderr is cut.
        at: After how many bytes.
    """

    def __init__(self, root: Path, stream: str, at: int | None) -> None:
        self._volume = Volume(root, LIMITS)
        self._cut = {stream: at}

    async def __call__(self, command: tuple[str, ...], stdin: IO[bytes] | None) -> ExecResult:
        sent = b"" if stdin is None else stdin.read()
        out, answer = io.BytesIO(), io.BytesIO()
        streams = Streams(io.BytesIO(sent[: self._cut.get("stdin")]), out, answer)
        code = serve(command[3:], volume=self._volume, streams=streams)
        kept = out.getvalue()[: self._cut.get("stdout")]
        return ExecResult(code, kept, answer.getvalue()[: self._cut.get("stderr")])


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    folder = tmp_path / "volume" / "runs" / "abc"
    folder.mkdir(parents=True)
    (folder / "candidates.jsonl").write_bytes(CANDIDATES)
    (tmp_path / "pack.txt").write_text("content")
    return tmp_path / "volume"


async def fetched(volume: Path, stream: str, at: int | None) -> bytes:
    """Return the records as the command line gets them through a broken stream."""
    part = await OperatorLink(Far(volume, stream, at)).get_run("abc", "candidates.jsonl")
    return b"" if part is None else part.data


async def uploaded(volume: Path, at: int | None) -> BundleReceipt:
    """Return the receipt for a pack whose upload breaks."""
    link = OperatorLink(Far(volume, "stdin", at))
    return await link.put_pack("p", {"manifest.yaml": volume.parent / "pack.txt"})


@pytest.mark.parametrize("at", range(len(CANDIDATES)))
async def test_a_073_attack_on_results(volume: Path, at: int) -> None:
    with pytest.raises(TransientClusterError):
        await fetched(volume, "stdout", at)


@pytest.mark.parametrize("at", [0, 1, 40, -2])
async def test_a_073_attack_on_answers(volume: Path, at: int) -> None:
    with pytest.raises(TransientClusterError):
        await fetched(volume, "stderr", at)


@pytest.mark.parametrize("at", [0, 1, 512, 519, 1024, -1])
async def test_a_073_attack_on_uploads(volume: Path, at: int) -> None:
    with pytest.raises(SecureBenchError):
        await uploaded(volume, at)
    assert not (volume / "packs" / "p").exists()


@pytest.mark.parametrize("pieces", [(), (b"\x01all tests passed\n",), (b"\x01x", b"\x02y")])
async def test_a_073_attack_on_exec(pieces: tuple[bytes, ...]) -> None:
    with pytest.raises(TransientClusterError, match="before the command's exit code came"):
        await execute(Socket(*pieces))


async def test_a_073_twin_of_results(volume: Path) -> None:
    far = Far(volume, "stdout", CANDIDATES.index(b"\n") + 1)
    reply = await far(("", "", "", "get-run", "abc", "candidates.jsonl"), None)
    read_to_the_end = [json.loads(line) for line in reply.stdout.splitlines()]

    assert read_to_the_end == [{"task_id": "a", "passed": True}]


def test_a_073_twin_of_uploads(volume: Path) -> None:
    sent = io.BytesIO()
    files = dict.fromkeys(("manifest.yaml", "tasks.jsonl"), volume.parent / "pack.txt")
    write_bundle(files, sent, LIMITS)
    first_file = 2 * tarfile.BLOCKSIZE

    with tarfile.open(fileobj=io.BytesIO(sent.getvalue()[:first_file])) as received:
        assert received.getnames() == ["manifest.yaml"]


async def test_a_073_honest_streams(volume: Path) -> None:
    assert await fetched(volume, "stdout", None) == CANDIDATES
    assert (await uploaded(volume, None)).files == 1
    result, _, _ = await execute(Socket(b"\x01ok", b"\x03" + SUCCESS))
    assert result.exit_code == 0
