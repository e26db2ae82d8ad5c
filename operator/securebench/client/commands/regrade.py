"""``securebench regrade``: verify what the agents of an earlier run handed in again."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from securebench.client.commands.resume import create_like
from securebench.client.commands.watch import WatchOptions, watch
from securebench.client.inspection.find import require_one_run
from securebench.client.output import print_line, print_note
from securebench.client.output_formats import OutputForm
from securebench.client.submit.submit import random_suffix, run_name
from securebench.client.volume.connection import ClusterTarget, open_cluster
from securebench.client.watch.follow import run_state
from securebench.cluster.port import AlreadyExists, Raw
from securebench.errors import InvalidInputError
from securebench.json_values import object_at, text_at

_NOT_TAKEN_OVER = frozenset({"cancel", "suspend", "runId", "resumeFrom", "regrade"})


class RegradeOptions(NamedTuple):
    """How a run is graded again.

    Args:
        name: Name of the new BenchmarkRun; empty: made from that of the earlier one.
        pack: Folder of the pack on the results volume; empty: the pack of the earlier run.
        is_awaited: Whether to follow it to its end.
    """

    name: str = ""
    pack: str = ""
    is_awaited: bool = False


def regrade(run: str, options: RegradeOptions, target: ClusterTarget) -> int:
    """Create the run that grades an earlier one again.

    Args:
        run: Name or run id of a BenchmarkRun that has ended.
        options: How.
        target: Namespace of the run.
    """
    old, new = asyncio.run(_create(run, options, target))
    print_note(f"when it has ended, see what flipped: securebench results --diff {old} {new}")
    if options.is_awaited:
        return watch(new, WatchOptions(OutputForm.TEXT, None), target)
    print_line(f"run={new} regrades={old}")
    return 0


async def _create(text: str, options: RegradeOptions, target: ClusterTarget) -> tuple[str, str]:
    """Return the names of the earlier run and of the new one."""
    async with open_cluster(target) as cluster:
        earlier = await require_one_run(cluster, text)
        state = run_state(earlier)
        if state.end is None:
            raise InvalidInputError(
                f"BenchmarkRun {state.name} has not ended; follow it with"
                f" securebench watch {state.name}"
            )
        name = options.name or run_name(state.name, random_suffix())
        spec = regrade_spec(earlier, options.pack)
        try:
            await create_like(cluster, name, spec, earlier, ("harness",))
        except AlreadyExists:
            raise InvalidInputError(
                f"there is a BenchmarkRun {name} already; choose another --name"
            ) from None
        return state.name, name


def regrade_spec(earlier: Raw, folder: str = "") -> Raw:
    """Return the spec of the run that grades an earlier one again.

    Args:
        earlier: The BenchmarkRun before it.
        folder: Folder of the pack on the results volume; empty: the earlier pack as it is now,
            whatever digest it had.
    """
    kept = object_at(earlier, "spec").items()
    spec = {key: value for key, value in kept if key not in _NOT_TAKEN_OVER}
    pack = {key: value for key, value in object_at(spec, "pack").items() if key != "digest"}
    if folder:
        pack = {"volume": {"path": folder}}
    uid = text_at(object_at(earlier, "metadata"), "uid")
    return {**spec, "pack": pack, "regrade": {"run": run_state(earlier).name, "uid": uid}}
