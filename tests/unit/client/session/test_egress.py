"""What the command line brings home of a run with egress."""

from securebench.client.run_summary import parse_summary
from support.fake_operator import OperatorRun, Script, record
from unit.client.bench import Bench


def script(*lines: str) -> Script:
    async def operate(run: OperatorRun) -> None:
        run.bind()
        for name in "bac":
            run.write(record(name))
        if lines:
            (run.folder / "egress.jsonl").write_text("".join(lines))
        await run.end()

    return operate


async def test_the_log_of_the_gateway_comes_along(bench: Bench) -> None:
    lines = ['{"host": "docs.example.org"}\n', '{"host": "docs.example.org"}\n']
    await bench.run(script(*lines))
    assert (bench.output / "egress.jsonl").read_text() == "".join(lines)


async def test_the_log_of_an_earlier_run_does_not_stay(bench: Bench) -> None:
    bench.output.mkdir(exist_ok=True)
    (bench.output / "egress.jsonl").write_text("{}")
    await bench.run(script())
    assert not (bench.output / "egress.jsonl").exists()


def test_the_usage_of_a_summary_is_optional() -> None:
    raw = {
        "run_id": "r",
        "output_dir": "/o",
        "output_path": "/o/c",
        "total": 0,
        "verified": 0,
        "passed": 0,
        "score_sum": 0.0,
        "verification_status": "complete",
    }
    mean = {"value": 0.25, "low": -1.0, "high": 1.0}
    assert list(parse_summary(raw | {"mean_reward": mean}).figures()) == [
        "mean reward 0.25 (95 % interval -1 to 1)"
    ]
    assert parse_summary(raw).usage == {}
    assert parse_summary(raw | {"usage": {"requests": 3}}).usage == {"requests": 3}
