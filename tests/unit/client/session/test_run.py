from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from errno import ENOSPC
from itertools import count
from pathlib import Path

import pytest

from securebench.client.progress import Event
from securebench.client.result_folder import RecordMirror, line_marks
from securebench.client.run_summary import localized_summary, parse_summary
from securebench.client.volume import ExecResult, OperatorLink
from securebench.cluster.port import ObjectKind, metadata
from securebench.errors import (
    ClusterError,
    ConfigError,
    ConfigErrors,
    DigestMismatchError,
    PermanentClusterError,
    SecureBenchError,
    StorageError,
    TransientClusterError,
)
from securebench.files import tree_digest
from support.fake_operator import OperatorRun, record
from unit.client.bench import ENV, Bench


async def test_a_whole_run(bench: Bench) -> None:
    end = await bench.run()

    assert end.exit_code == 0
    assert end.summary is not None
    output = bench.output / "candidates.jsonl"
    assert end.summary.line() == (
        f"securebench: run_id=My run total=3 verification=complete verified=3 passed=2"
        f" output={output}"
    )
    run = bench.namespace.runs()[0]
    volume = bench.namespace.root / "runs" / str(metadata(run)["uid"]) / "candidates.jsonl"
    assert output.read_bytes() == volume.read_bytes()
    summary = json.loads((bench.output / "summary.json").read_text())
    assert summary["output_path"] == str(output)
    assert parse_summary(summary) == end.summary
    assert bench.reporter.done() == ["b", "a", "c"]
    assert bench.reporter.starts() == [(1, 3), (2, 3), (3, 3)]
    assert sorted(path.name for path in bench.output.iterdir()) == [
        "candidates.jsonl",
        "summary.json",
    ]


async def test_the_benchmark_run_says_what_the_yaml_says(bench: Bench) -> None:
    bench.edit("type: command", "type: command\n  env: [MY_NAME, EMPTY, UNSET]")
    bench.yaml.write_text(
        bench.yaml.read_text() + "verification: {disallow_dangerous_commands: false}\n"
    )
    bench.edit("output_dir: out", "output_dir: out, budget: {tokens: 5000}")
    run = bench.start(limit=2, parallelism=7)
    task = asyncio.create_task(run.execute())
    operated = await bench.namespace.next_run()
    operated.bind()
    operated.write(record("a"), record("b"))
    await operated.end()
    await task

    pack = operated.spec["pack"]
    assert isinstance(pack, Mapping)
    folder = str(pack["volume"]["path"])
    name = operated.name
    assert name == run.name
    assert name.startswith("my-run-")
    assert operated.spec == {
        "runId": "My run",
        "pack": {"volume": {"path": folder}, "digest": pack["digest"]},
        "harness": {
            "type": "command",
            "config": {"command": "python3 answer.py"},
            "env": ["MY_NAME", "EMPTY", "UNSET"],
            "secretRef": {"name": name},
        },
        "verification": {"disallowDangerousCommands": False, "denyCommands": []},
        "taskSelector": {"limit": 2},
        "parallelism": 7,
        "budget": {"tokens": 5000},
    }
    assert folder == "capitals-" + str(pack["digest"]).removeprefix("sha256:")[:12]
    uploaded = bench.namespace.root / "packs" / folder
    assert tree_digest(uploaded) == tree_digest(bench.folder / "pack")


async def test_the_secret_holds_what_is_set_and_belongs_to_the_run(bench: Bench) -> None:
    bench.edit("type: command", "type: command\n  env: [MY_NAME, EMPTY, UNSET]")
    await bench.run()
    run, (secret,) = (
        bench.namespace.runs()[0],
        bench.namespace.cluster.objects(ObjectKind.SECRET).values(),
    )
    meta = metadata(secret)
    assert secret["data"] == {"MY_NAME": base64.b64encode(b"value").decode()}
    assert meta["name"] == metadata(run)["name"]
    assert meta["labels"]["securebench.dev/usable-by-runs"] == "true"  # type: ignore[index]
    assert meta["ownerReferences"] == [
        {
            "apiVersion": "securebench.dev/v1alpha1",
            "kind": "BenchmarkRun",
            "name": metadata(run)["name"],
            "uid": metadata(run)["uid"],
        }
    ]


def use_codex(bench: Bench) -> None:
    bench.edit('{command: "python3 answer.py"}', "{model: gpt-5}")
    bench.edit("type: command", "type: codex\n  env: [MY_NAME, OPENAI_API_KEY]")


async def test_a_provider_key_goes_to_the_gateway_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_codex(bench)
    monkeypatch.setitem(ENV, "OPENAI_API_KEY", "the-key")
    assert (await bench.run()).exit_code == 0
    (run,) = bench.namespace.runs()
    name = str(metadata(run)["name"])
    spec = run["spec"]
    assert isinstance(spec, Mapping)
    assert spec["provider"] == {"secretRef": {"name": f"{name}-provider"}}
    assert spec["harness"]["env"] == ["MY_NAME"]
    assert spec["harness"]["secretRef"] == {"name": name}
    secrets = bench.namespace.cluster.objects(ObjectKind.SECRET)
    assert {key: list(item["data"]) for key, item in secrets.items()} == {  # type: ignore[call-overload]
        name: ["MY_NAME"],
        f"{name}-provider": ["OPENAI_API_KEY"],
    }
    for key, secret in secrets.items():
        meta = metadata(secret)
        usable = "true" if key == name else "gateway"
        assert meta["labels"]["securebench.dev/usable-by-runs"] == usable  # type: ignore[index]
        assert meta["ownerReferences"][0]["uid"] == metadata(run)["uid"]  # type: ignore[index]
    assert "the-key" not in json.dumps(run)


async def test_a_missing_key_is_told_before_anything_is_made(bench: Bench) -> None:
    use_codex(bench)
    with pytest.raises(ConfigError, match=r"codex needs OPENAI_API_KEY: set it"):
        await bench.start().execute()
    assert bench.namespace.cluster.objects(ObjectKind.SECRET) == {}
    assert bench.namespace.operations() == []


async def test_a_refused_run_leaves_neither_secret(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_codex(bench)
    monkeypatch.setitem(ENV, "OPENAI_API_KEY", "the-key")
    refusal = PermanentClusterError("forbidden", status=403)
    bench.namespace.cluster.fail_next("create", refusal, kind=ObjectKind.BENCHMARK_RUN)
    with pytest.raises(PermanentClusterError):
        await bench.start().execute()
    assert bench.namespace.cluster.objects(ObjectKind.SECRET) == {}


async def test_a_secret_that_cannot_be_owned_is_told(bench: Bench) -> None:
    bench.edit("type: command", "type: command\n  env: [MY_NAME]")
    bench.namespace.cluster.fail_next("patch", PermanentClusterError("no", status=403))
    assert (await bench.run()).exit_code == 0
    assert "must be deleted by hand" in bench.reporter.notes()


async def test_without_env_there_is_no_secret(bench: Bench) -> None:
    await bench.run()
    assert bench.namespace.cluster.objects(ObjectKind.SECRET) == {}


async def test_a_refused_run_leaves_no_secret(bench: Bench) -> None:
    bench.edit("type: command", "type: command\n  env: [MY_NAME]")
    refusal = PermanentClusterError("forbidden", status=403)
    bench.namespace.cluster.fail_next("create", refusal, kind=ObjectKind.BENCHMARK_RUN)
    with pytest.raises(PermanentClusterError):
        await bench.start().execute()
    assert bench.namespace.cluster.objects(ObjectKind.SECRET) == {}


async def test_a_pack_is_uploaded_once(bench: Bench) -> None:
    await bench.run()
    await bench.run()
    assert bench.namespace.operations().count("put-pack") == 1
    (bench.folder / "pack" / "assets").mkdir()
    (bench.folder / "pack" / "assets" / "new.txt").write_text("new")
    await bench.run()
    assert bench.namespace.operations().count("put-pack") == 2


async def test_a_tampered_pack_on_the_volume_is_replaced(bench: Bench) -> None:
    await bench.run()
    (folder,) = (bench.namespace.root / "packs").glob("capitals-*")
    (folder / "tasks.jsonl").write_text("{}")
    await bench.run()
    assert tree_digest(folder) == tree_digest(bench.folder / "pack")


async def test_a_damaged_upload_starts_nothing(bench: Bench) -> None:
    bench.namespace.tamper = lambda data: data.replace(b"a?", b"z?")
    with pytest.raises(DigestMismatchError, match="arrived damaged"):
        await bench.start().execute()
    assert bench.namespace.runs() == []
    assert list((bench.namespace.root / "packs").glob("capitals*")) == []


async def test_an_upload_that_breaks_off_is_repeated(bench: Bench) -> None:
    bench.namespace.failures.append(TransientClusterError("broken pipe"))
    assert (await bench.run()).exit_code == 0


async def test_config_errors_change_nothing(bench: Bench) -> None:
    bench.edit('command: "python3 answer.py"', "comand: x, timeout_seconds: 0")
    tasks = bench.folder / "pack" / "tasks.jsonl"
    tasks.write_text('{"id": "a"}\nno json\n')
    with pytest.raises(ConfigErrors) as caught:
        bench.start()
    lines = [str(error) for error in caught.value.errors]
    assert len(lines) >= 4
    assert lines[0].startswith(f"{bench.yaml}:6: ")
    assert any(line.startswith(f"{tasks}:2: invalid JSON") for line in lines)
    assert bench.namespace.calls == []
    assert not bench.output.exists()


async def test_a_symlink_in_an_asset_root_is_refused(bench: Bench) -> None:
    (bench.folder / "pack" / "assets").mkdir()
    (bench.folder / "pack" / "assets" / "link").symlink_to("/etc/passwd")
    with pytest.raises(SecureBenchError, match="is a symlink: replace it by the file"):
        bench.start()


async def test_records_of_an_earlier_run_stay_until_the_new_run_exists(bench: Bench) -> None:
    bench.output.mkdir()
    (bench.output / "candidates.jsonl").write_text("old\n")
    refusal = PermanentClusterError("no", status=422)
    bench.namespace.cluster.fail_next("create", refusal, kind=ObjectKind.BENCHMARK_RUN)
    with pytest.raises(PermanentClusterError):
        await bench.start().execute()
    assert (bench.output / "candidates.jsonl").read_text() == "old\n"
    await bench.run()
    assert bench.lines() == ["a", "b", "c"]


async def test_an_interrupted_start_joins_its_run(bench: Bench) -> None:
    first = bench.start()
    following = asyncio.create_task(first.execute())
    run = await bench.namespace.next_run()
    run.bind()
    run.write(record("b"))
    await run.status("Running")
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following
    assert first.name == run.name

    second = asyncio.create_task(bench.start().execute())
    await run.status("Running", "still")
    run.write(record("a"), record("b"), record("c", passed=None, outcome="infrastructure"))
    await run.end("Incomplete")
    end = await second

    assert len(bench.namespace.runs()) == 1
    assert (end.exit_code, end.state.reason) == (0, "Incomplete")
    assert bench.reporter.fields_of(Event.RESUME)["completed"] == 1
    assert bench.reporter.fields_of(Event.RESUME)["remaining"] == 2
    assert bench.reporter.done() == ["a", "c"]
    assert bench.reporter.starts() == [(2, 3), (3, 3)]
    assert "joined BenchmarkRun" in bench.reporter.notes()
    assert bench.lines() == ["a", "b", "c"]


@pytest.mark.parametrize(
    "change",
    [
        ("answer.py", "other.py"),
        ("My run", "Your run"),
    ],
)
async def test_another_configuration_joins_nothing(bench: Bench, change: tuple[str, str]) -> None:
    following = asyncio.create_task(bench.start().execute())
    await bench.namespace.next_run()
    following.cancel()
    bench.edit(*change)
    await bench.run()
    assert len(bench.namespace.runs()) == 2


async def test_a_finished_run_is_not_joined(bench: Bench) -> None:
    await bench.run()
    await bench.run()
    assert len(bench.namespace.runs()) == 2


@pytest.mark.parametrize(
    ("reason", "want"),
    [
        ("InvalidSpec", 1),
        ("PackInvalid", 1),
        ("IsolationNotVerified", 1),
        ("DeadlineExceeded", 1),
        ("BudgetExhausted", 1),
        ("Cancelled", 1),
        ("Incomplete", 0),
        ("Completed", 0),
    ],
)
async def test_exit_codes(bench: Bench, reason: str, want: int) -> None:
    async def script(run: OperatorRun) -> None:
        run.bind()
        run.write(record("a"))
        await run.end(reason, "why")

    end = await bench.run(script)
    assert (end.exit_code, end.state.message) == (want, "why")


async def test_a_run_that_was_refused_has_no_summary(bench: Bench) -> None:
    async def script(run: OperatorRun) -> None:
        await run.status("InvalidSpec", "spec.pack: no")

    end = await bench.run(script)
    assert (end.exit_code, end.summary) == (1, None)


async def test_a_lost_connection_is_survived(bench: Bench) -> None:
    async def script(run: OperatorRun) -> None:
        run.bind()
        await run.status("Running")
        bench.namespace.cluster.fail_next("get", TransientClusterError("refused"))
        bench.namespace.cluster.fail_next("get", TransientClusterError("refused"))
        bench.namespace.cluster.end_watches(TransientClusterError("reset"))
        for _ in range(50):
            await asyncio.sleep(0)
        run.write(record("a"))
        bench.namespace.failures.append(PermanentClusterError("no such Pod", status=404))
        await run.status("Running")
        bench.namespace.failures += [PermanentClusterError("no such Pod", status=404)] * 3
        await run.end()

    end = await bench.run(script)
    assert end.exit_code == 0
    assert bench.lines() == ["a"]
    notes = bench.reporter.notes()
    assert notes.count("connection lost; the run continues") == 1
    assert notes.count("connected again") == 1
    assert "records could not be fetched; the run continues" in notes
    assert bench.namespace.waits[:3] == [1.0, 2.0, 4.0]


async def test_an_ended_or_expired_watch_is_opened_again(bench: Bench) -> None:
    async def script(run: OperatorRun) -> None:
        run.bind()
        await run.status("Running")
        bench.namespace.cluster.end_watches()
        await run.status("Running", "a")
        bench.namespace.cluster.expire_history()
        run.write(record("a"))
        await run.end()

    assert (await bench.run(script)).exit_code == 0


async def test_a_deleted_run_is_an_error(bench: Bench) -> None:
    async def script(run: OperatorRun) -> None:
        await run.status("Running")
        bench.namespace.cluster.remove(ObjectKind.BENCHMARK_RUN, run.name)

    with pytest.raises(ClusterError, match="was deleted"):
        await bench.run(script)


async def test_waiting_is_explained_once(bench: Bench) -> None:
    async def script(run: OperatorRun) -> None:
        run.bind()
        await run.status("QuotaExceeded", "no room for Pods")
        await run.status("QuotaExceeded", "no room for Pods", total=2)
        run.write(record("a"))
        await run.end()

    await bench.run(script)
    assert bench.reporter.notes().count("QuotaExceeded: no room for Pods") == 1


async def test_a_lost_answer_to_the_creation_makes_no_second_run(bench: Bench) -> None:
    bench.namespace.cluster.fail_next(
        "create", TransientClusterError("lost"), before=False, kind=ObjectKind.BENCHMARK_RUN
    )
    await bench.run()
    assert len(bench.namespace.runs()) == 1


async def test_a_taken_name_is_not_used(bench: Bench) -> None:
    await bench.run()
    taken = str(metadata(bench.namespace.runs()[0])["name"])
    bench.suffixes = count(int(taken.rpartition("-")[2]))
    await bench.run()
    assert len(bench.namespace.runs()) == 2


async def test_a_completed_run_without_summary_is_an_error(bench: Bench) -> None:
    async def script(run: OperatorRun) -> None:
        run.write(record("a"))
        await run.status("Completed")

    with pytest.raises(SecureBenchError, match=r"no summary\.json"):
        await bench.run(script)


async def test_the_mirror_fetches_only_what_changed(bench: Bench) -> None:
    namespace, path = bench.namespace, bench.folder / "mirror.jsonl"
    file = namespace.root / "runs" / "abc" / "candidates.jsonl"
    mirror = RecordMirror(OperatorLink(namespace.execute), "abc", path)
    assert await mirror.refresh() == []
    assert not path.exists()
    file.parent.mkdir(parents=True)
    lines = [json.dumps({"task_id": str(index), "pad": "x" * 100}) + "\n" for index in range(50)]
    file.write_text("".join(lines[:30] + lines[31:]))
    assert len(await mirror.refresh()) == 49

    file.write_text("".join(lines))
    assert [found["task_id"] for found in await mirror.refresh()] == ["30"]
    assert path.read_bytes() == file.read_bytes()
    with path.open("rb") as local:
        marks = line_marks(local)
    assert [mark.offset for mark in marks] == sorted(mark.offset for mark in marks)
    assert marks[-1].offset == file.stat().st_size
    assert await mirror.refresh() == []


async def test_two_mirrors_of_one_file_do_not_disturb_each_other(bench: Bench) -> None:
    namespace, path = bench.namespace, bench.folder / "mirror.jsonl"
    file = namespace.root / "runs" / "abc" / "candidates.jsonl"
    file.parent.mkdir(parents=True)
    mirrors = [RecordMirror(OperatorLink(namespace.execute), "abc", path) for _ in range(4)]
    for lines in range(1, 6):
        file.write_text("".join(f'{{"task_id": "{number}"}}\n' for number in range(lines)))
        await asyncio.gather(*(mirror.fetch() for mirror in mirrors))
        assert path.read_bytes() == file.read_bytes()
    assert [each.name for each in bench.folder.iterdir() if "mirror" in each.name] == [path.name]


async def test_a_full_disk_names_the_file_and_what_to_do(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace, path = bench.namespace, bench.folder / "mirror.jsonl"

    def full(_draft: Path, _mode: str) -> None:
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "open", full)
    mirror = RecordMirror(OperatorLink(namespace.execute), "abc", path)
    with pytest.raises(
        StorageError, match=r"mirror\.jsonl cannot be written: No space left"
    ) as said:
        await mirror.fetch()
    assert "fetch them with securebench results" in str(said.value)


async def test_the_mirror_joins_parts_and_notices_a_change_between_them(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace, path = bench.namespace, bench.folder / "mirror.jsonl"
    file = namespace.root / "runs" / "abc" / "candidates.jsonl"
    file.parent.mkdir(parents=True)
    first = '{"task_id": "b"}\n{"task_id": "c"}\n'
    file.write_text(first)
    monkeypatch.setattr("securebench.controller.exec_io.MAX_ANSWER_BYTES", 20)

    async def execute(command: object, stdin: object) -> object:
        result = await namespace.execute(command, stdin)  # type: ignore[arg-type]
        file.write_text('{"task_id": "a"}\n' + first)
        return result

    mirror = RecordMirror(OperatorLink(execute), "abc", path)  # type: ignore[arg-type]
    assert [found["task_id"] for found in await mirror.refresh()] == ["a", "b", "c"]
    assert path.read_bytes() == file.read_bytes()


async def test_what_tells_of_the_records_goes_before_they_are_replaced(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace, path = bench.namespace, bench.folder / "mirror.jsonl"
    file = namespace.root / "runs" / "abc" / "candidates.jsonl"
    outdated = bench.folder / "summary.json"
    outdated.touch()
    mirror = RecordMirror(OperatorLink(namespace.execute), "abc", path)
    assert not await mirror.fetch(outdated)
    assert outdated.exists()

    def killed(_draft: Path, _target: Path) -> None:
        raise KeyboardInterrupt

    file.parent.mkdir(parents=True)
    file.write_text('{"task_id": "a"}\n')
    path.write_text("before\n")
    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        await mirror.fetch(outdated)
    assert path.read_text() == "before\n"
    assert not outdated.exists()


async def test_a_damaged_answer_leaves_the_mirror_as_it_was(bench: Bench) -> None:
    namespace, path = bench.namespace, bench.folder / "mirror.jsonl"
    file = namespace.root / "runs" / "abc" / "candidates.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text('{"task_id": "a"}\n')
    path.write_text("before\n")

    async def execute(command: object, stdin: object) -> object:
        result = await namespace.execute(command, stdin)  # type: ignore[arg-type]
        return result._replace(stdout=result.stdout.replace(b"a", b"b"))

    mirror = RecordMirror(OperatorLink(execute), "abc", path)  # type: ignore[arg-type]
    with pytest.raises(DigestMismatchError):
        await mirror.refresh()
    assert path.read_text() == "before\n"
    assert [item.name for item in bench.folder.glob(".*.part")] == []


@pytest.mark.parametrize(
    ("result", "want"),
    {
        "cut off": (ExecResult(0, b"", b"some log"), "was cut off"),
        "two answers in one": (ExecResult(0, b"", b'{"ok":false,"ok":true}'), "was cut off"),
        "no answer": (ExecResult(127, b"", b"sh: securebench: not found"), "exit code 127.*found"),
        "nothing": (ExecResult(1, b"", b""), r"exit code 1\)$"),
        "fewer bytes": (
            ExecResult(0, b"a", b'{"ok":true,"present":true,"offset":0,"sent":2,"size":2}'),
            "arrived incomplete",
        ),
    }.values(),
)
async def test_answers_that_do_not_hold_are_worth_repeating(result: ExecResult, want: str) -> None:
    async def execute(_command: object, _stdin: object) -> ExecResult:
        return result

    with pytest.raises(TransientClusterError, match=want):
        await OperatorLink(execute).get_run("uid", "summary.json")


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"{}", b'{"run_id": "a", "verification_status": "complete", "total": "1"}'],
)
def test_a_damaged_summary_is_said(text: bytes, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"summary\.json .* is damaged"):
        parse_summary(localized_summary(text, tmp_path))
