import pytest

from bench.floor import SHAPES
from bench.product import (
    IMAGE,
    KINDS,
    LABEL,
    benchmark_run,
    check,
    pack,
    requests_between,
    samples,
    succeeded,
)
from securebench.benchmark.files.load import check_pack
from securebench.run.api.models import BenchmarkRunSpec

METRICS = """\
# HELP securebench_api_requests_total Requests of this operator to the API server.
securebench_api_requests_total{kind="Pod",verb="create"} 6.0
securebench_api_requests_total{kind="Pod",verb="delete"} 4.0
process_cpu_seconds_total 1.25
process_resident_memory_bytes 7.5e+07
"""


@pytest.mark.parametrize("name", KINDS)
def test_a_pack_of_each_kind_loads(tmp_path, name):
    kind = KINDS[name]
    for file, text in pack("bench-1", kind, 3)["data"].items():
        (tmp_path / file).write_text(text)
    checked = check_pack(tmp_path / "manifest.yaml", tmp_path / "tasks.jsonl")
    assert checked.errors == ()
    tasks = [task for _, task in checked.tasks]
    assert [task.id for task in tasks] == ["task-0", "task-1", "task-2"]
    assert {task.task_type for task in tasks} == {kind.family}
    assert IMAGE in pack("bench-1", kind, 3)["data"]["manifest.yaml"]


@pytest.mark.parametrize("name", KINDS)
def test_a_run_of_each_kind_is_valid_and_has_a_floor(name):
    run = benchmark_run("bench-1", KINDS[name], 8)
    spec = BenchmarkRunSpec.model_validate(run["spec"])
    assert spec.parallelism == 8
    assert spec.resources.requested() == {"cpu": "10m", "memory": "16Mi"}
    assert run["metadata"]["labels"] == {LABEL: "bench-1"}
    assert set(KINDS[name].floors) <= set(SHAPES)


def test_samples_are_summed_and_kept_by_label():
    found = samples(METRICS)
    assert found["securebench_api_requests_total"] == 10.0
    assert found["process_resident_memory_bytes"] == 7.5e7
    assert found['securebench_api_requests_total{kind="Pod",verb="create"}'] == 6.0


def test_requests_are_those_in_between():
    later = METRICS.replace("6.0", "9.0") + (
        'securebench_api_requests_total{kind="Event",verb="create"} 1.0\n'
    )
    assert requests_between(samples(METRICS), samples(later)) == {
        "create Pod": 3.0,
        "create Event": 1.0,
    }


def run_with(**status):
    return {"status": {"conditions": [{"type": "Succeeded", "status": "True"}], **status}}


def test_a_run_in_which_every_task_passed_counts():
    assert succeeded({}) == ""
    assert succeeded(run_with()) == "True"
    check(run_with(score={"passed": 4}), 4)


@pytest.mark.parametrize("status", [{}, {"score": {"passed": 3}}])
def test_a_run_that_failed_is_no_figure(status):
    with pytest.raises(SystemExit, match="of 4 tasks passed"):
        check(run_with(**status), 4)
