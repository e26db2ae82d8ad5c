"""A pack with its own answers and with none."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from securebench.audit import command
from securebench.audit.command import Trial, TrialKind, run_trial
from securebench.client import tester_config as tester
from securebench.client.progress import Reporter
from securebench.client.run_start import SessionDependencies
from securebench.client.session import RunSession
from securebench.client.submit import PreparedSubmission
from securebench.client.volume import ClusterTarget, OperatorLink
from securebench.errors import ConfigErrors, SecureBenchError
from securebench.names import AUDIT, PURPOSE_LABEL
from support.fake_operator import Namespace, OperatorRun, record, write_tester

PLACE = ClusterTarget("bench")
ANSWERS = "".join(f'{{"id": "{name}", "candidate": "x"}}\n' for name in "abc")


class Cluster:
    """Stands for the cluster: each session meets the fake operator."""

    def __init__(self, folder: Path) -> None:
        self.namespace = Namespace(folder)
        self.end = ("Completed", "")
        self.run: OperatorRun | None = None
        self.place: ClusterTarget | None = None

    @asynccontextmanager
    async def open_session(
        self,
        config: tester.TesterConfig,
        prepared: PreparedSubmission,
        reporter: Reporter,
        place: ClusterTarget,
        parallelism: int | None,
    ) -> AsyncIterator[RunSession]:
        self.place = place
        link, sleep = OperatorLink(self.namespace.execute), self.namespace.sleep
        around = SessionDependencies(
            self.namespace.cluster,
            link,
            {},
            reporter,
            sleep,
            self.namespace.cluster.user_name,
            lambda: "00000a",
        )
        operator = asyncio.create_task(self._operate())
        try:
            yield RunSession(config, prepared, around, parallelism)
        finally:
            operator.cancel()

    async def _operate(self) -> None:
        self.run = run = await self.namespace.next_run()
        run.bind()
        run.write(record("a"), record("b", passed=False), record("c", passed=None, outcome=None))
        await run.end(*self.end)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster(tmp_path / "volume")
    monkeypatch.setattr(command, "open_session", made.open_session)
    return made


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """A pack whose tester YAML lies in its own folder, as those of benchmarks/."""
    tester = write_tester(tmp_path)
    folder = tmp_path / "pack"
    text = tester.read_text().replace("pack/", "")
    (folder / "tester.yaml").write_text(text + "verification: {deny_commands: [chroot]}\n")
    (folder / "oracle").mkdir()
    (folder / "oracle/answers.jsonl").write_text(ANSWERS)
    return folder


@pytest.mark.parametrize("kind", ["oracle", "nop"])
async def test_a_trial(kind: TrialKind, cluster: Cluster, pack: Path) -> None:
    trial = await run_trial(PLACE, pack, kind)
    assert (trial.pack_id, trial.kind) == ("capitals", kind)
    assert (trial.passed, trial.scored, trial.tasks) == (1, 2, 3)
    assert trial.family_by_task == dict.fromkeys("abc", "short_answer")
    assert [each["task_id"] for each in trial.records] == ["a", "b", "c"]
    assert trial.score == 1 / 3
    assert trial.seconds > 0
    assert cluster.place == PLACE
    assert cluster.run is not None
    assert cluster.run.spec["harness"] == {"type": kind, "config": {}}
    assert cluster.run.spec["runId"] == f"My run-{kind}"
    assert cluster.run.spec["verification"] == {
        "disallowDangerousCommands": True,
        "denyCommands": ["chroot"],
    }
    assert cluster.run.run["metadata"]["labels"][PURPOSE_LABEL] == AUDIT  # type: ignore[index]


@pytest.mark.usefixtures("cluster")
async def test_the_folder_of_the_testers_own_results_stays(pack: Path) -> None:
    await run_trial(PLACE, pack, "nop")
    assert not (pack / "out").exists()


async def test_a_pack_without_a_tester_yaml_and_a_limit(cluster: Cluster, pack: Path) -> None:
    (pack / "tester.yaml").unlink()
    trial = await run_trial(PLACE, pack, "oracle", limit=2)
    assert trial.tasks == 2
    assert cluster.run is not None
    assert cluster.run.spec["taskSelector"] == {"limit": 2}
    assert cluster.run.spec["runId"] == "pack-oracle"
    assert "parallelism" not in cluster.run.spec


async def test_a_folder_of_task_folders(cluster: Cluster) -> None:
    tasks = Path(__file__).parents[3] / "benchmarks/harbor-tasks/tasks"
    trial = await run_trial(PLACE, tasks, "oracle")
    assert set(trial.family_by_task.values()) == {"harbor_task"}
    assert cluster.run is not None
    assert cluster.run.spec["harness"] == {"type": "oracle", "config": {"network": "none"}}


async def test_a_trial_with_its_own_parallelism(cluster: Cluster, pack: Path) -> None:
    await run_trial(PLACE, pack, "nop", parallelism=1)
    assert cluster.run is not None
    assert cluster.run.spec["parallelism"] == 1


async def test_a_run_that_does_not_finish_is_an_error(cluster: Cluster, pack: Path) -> None:
    cluster.end = ("PodRefused", "no")
    with pytest.raises(SecureBenchError, match=r"ended with PodRefused: no"):
        await run_trial(PLACE, pack, "nop")


async def test_an_oracle_needs_answers(cluster: Cluster, pack: Path) -> None:
    shutil.rmtree(pack / "oracle")
    with pytest.raises(ConfigErrors, match="the pack has no such file"):
        await run_trial(PLACE, pack, "oracle")
    assert cluster.run is None


def test_nothing_has_no_score() -> None:
    assert Trial("p", {}, "nop", 0, 0, 0, 1.0, ()).score is None
