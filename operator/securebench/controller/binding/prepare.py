"""From a BenchmarkRun to a bound run: a new one, or one that an earlier start bound."""

from __future__ import annotations

from functools import partial

from securebench.controller.binding.new_run import Sources, bind_new_run
from securebench.controller.binding.restore import restore_run
from securebench.controller.capacity import MEMORY_FACTOR
from securebench.controller.context import Context, PreparedRun, RunObject
from securebench.controller.earlier_run import regraded_run, resumed_run
from securebench.controller.packs import fetch_pack, refuse_registry_domains
from securebench.controller.policy_from_settings import check_secrets, limits
from securebench.controller.volume.store import RunStore
from securebench.controller.volume_calls import bulk_on_volume, on_volume
from securebench.run.api.models import BenchmarkRunSpec
from securebench.run.plan.build import require_audit


async def prepare(context: Context, run: RunObject) -> PreparedRun:
    """Bind a new run, or restore the binding of an earlier start.

    Args:
        context: Shared parts of the operator: client, settings, clock.
        run: The BenchmarkRun.

    Raises:
        InvalidInputError: The user must change something.
        RegistryUnavailableError: The registry of its pack did not answer.
        ClusterError: The API server did not answer.
        OSError: The volume did not do what was asked.
    """
    spec = BenchmarkRunSpec.parse(run.spec)
    store = RunStore(context.settings.data_root, run.uid, context.lead)
    if await on_volume(store.exists):
        return await bulk_on_volume(restore_run, context, run, spec, store)
    await check_secrets(context.cluster, spec)
    require_audit(spec, audit=run.audit)
    refuse_registry_domains(context.settings, spec)
    source = await fetch_pack(context, spec.pack)
    resumed = await resumed_run(context, spec, run.uid)
    regraded = await regraded_run(context, spec, run.uid)
    bind = partial(bind_new_run, context, run, spec, Sources(source, resumed, regraded))
    if regraded is None:
        return await bulk_on_volume(bind)
    # It judges patches once more, one at a time.
    need_bytes = MEMORY_FACTOR * limits(context.settings).patch_bytes
    return await context.reading.run_within(need_bytes, partial(bulk_on_volume, bind))
