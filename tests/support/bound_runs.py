"""A run that was bound, for tests that look at its parts."""

from __future__ import annotations

from typing import NamedTuple

from securebench.controller.binding import prepare
from securebench.controller.context import Context, FrozenPack, RunObject
from securebench.controller.packs import frozen
from securebench.controller.volume.registers import IndexEntry, index_entry
from securebench.controller.volume.store import RunStore
from securebench.run.plan.model import RunPlan
from securebench.run.state.entries import CandidateKept, Kept


class BoundRun(NamedTuple):
    """The plan of a run, and what the volume has of its binding."""

    plan: RunPlan
    store: RunStore
    pack: FrozenPack
    index: IndexEntry
    kept: tuple[Kept | CandidateKept, ...]


async def bound_run(context: Context, run: RunObject) -> BoundRun:
    """Bind a run, or restore its binding."""
    plan, root = await prepare(context, run), context.settings.data_root
    store = RunStore(root, run.uid, context.lead)
    pack, index = frozen(root, plan.pack_digest), index_entry(store.binding()["index"])
    return BoundRun(plan, store, pack, index, store.kept())
