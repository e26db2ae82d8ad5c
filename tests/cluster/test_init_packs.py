"""Packs of `securebench init` accept their own reference answers; `make packs` runs this."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from securebench.audit.command import Trial, run_trial
from securebench.benchmark.families.registry import FAMILIES
from securebench.client.starter import init
from securebench.client.volume import ClusterTarget
from support.release import Release

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def test_the_packs_of_init_accept_their_reference_answers(place: Release, tmp_path: Path) -> None:
    written = (name for name, family in FAMILIES.items() if family.has_rows)
    folders = {name: tmp_path / name.replace("_", "-") for name in written}
    # The name of the docs' example, whose image the node has.
    folders["repo_patch"] = tmp_path / "slugs"
    for family, folder in folders.items():
        assert init(folder, family, "command") == 0

    async def trials() -> list[Trial]:
        target = ClusterTarget(place.namespace)
        packs = folders.values()
        return await asyncio.gather(*(run_trial(target, pack, "oracle") for pack in packs))

    ended = asyncio.run(trials())
    assert {each.pack_id: each.score for each in ended} == {
        folder.name: 1.0 for folder in folders.values()
    }
