"""Faults between the operator and the real API server: runs side by side, one for each kind."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from kubernetes.aio.client import ApiClient

from chaos.kit.catalogue import kinds
from chaos.kit.proxy import Rule
from chaos.kit.real import Played, play
from chaos.kit.scene import END
from chaos.kit.table import ROWS
from chaos.kit.verdict import Course, Verdict, judge
from securebench.cluster.client import ApiCluster, load_configuration
from support.release import CHART, call, images, namespace

pytestmark = pytest.mark.cluster

QUIET = "quiet"
RUN = "/benchmarkruns"
RULES = {
    "proxy-create-429": (Rule("POST", "429"),),
    "proxy-create-500": (Rule("POST", "500"),),
    "proxy-create-409": (Rule("POST", "409"),),
    "proxy-create-cut": (Rule("POST", "cut"),),
    "proxy-create-answer-lost": (Rule("POST", "cut-after"),),
    "proxy-create-answer-cut": (Rule("POST", "half"),),
    "proxy-delete-500": (Rule("DELETE", "500", first=1),),
    "proxy-delete-answer-lost": (Rule("DELETE", "cut-after", first=1),),
    "proxy-status-500": (Rule("PATCH", "500", RUN),),
    "proxy-status-answer-lost": (Rule("PATCH", "cut-after", RUN),),
    "proxy-bad-gateway": (Rule("POST", "garbage"), Rule("PATCH", "garbage", RUN)),
    "proxy-slow": tuple(Rule(verb, "slow", first=1, times=99) for verb in ("POST", "DELETE")),
    "proxy-watch-cut": (Rule("watch", "cut-line", first=1, times=4),),
    "proxy-watch-410": (Rule("watch", "expired", first=1, times=4),),
    "proxy-watch-doubled": (Rule("watch", "doubled", first=1, times=99),),
    "proxy-watch-late": (Rule("watch", "late", first=1, times=1),),
    "proxy-list-cut": (Rule("watch", "expired", first=1), Rule("list", "half", first=2)),
}


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """Return what all runs left, by kind."""
    images()
    call("kubectl", "apply", "--server-side", "--force-conflicts", "-f", str(CHART / "crds"))
    with namespace("sb-chaos-proxy", {}) as name:
        account = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "securebench-runs"},
        }
        call("kubectl", "-n", name, "create", "-f", "-", stdin=json.dumps(account).encode())
        return asyncio.run(_play_all(name, tmp_path_factory.mktemp("volumes")))


async def _play_all(name: str, folder: Path) -> dict[str, Played]:
    upstream = await load_configuration(None)
    async with ApiClient(upstream) as api:
        admin = ApiCluster(api, name)
        chosen = {QUIET: ()} | RULES
        work = (play(kind, rules, admin, upstream, folder / kind) for kind, rules in chosen.items())
        return dict(zip(chosen, await asyncio.gather(*work), strict=True))


def test_every_kind_of_the_proxy_has_rules():
    assert [kind.name for kind in kinds("proxy")] == list(RULES)


@pytest.mark.parametrize("kind", kinds("proxy"), ids=lambda kind: kind.name)
def test_the_records_do_not_show_the_fault(kind, played):
    quiet, found = played[QUIET], played[kind.name]
    assert quiet.reason == END
    verdict = judge(
        Course(found.entries, found.records), Course(quiet.entries, quiet.records), kind.lost
    )
    problems = [f"ended as {found.reason}"] if found.reason != END else []
    problems += [] if found.broken else ["the fault was not felt"]
    verdict = Verdict((*problems, *verdict.problems), verdict.lost, verdict.is_equal)
    ROWS.add(kind.name, verdict, injections=found.broken)
    assert verdict.problems == ()
