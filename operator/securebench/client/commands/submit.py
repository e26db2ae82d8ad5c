"""The command ``securebench submit``: start a run and leave it to the cluster."""

from __future__ import annotations

import asyncio

from securebench.client.commands.run import RunOptions, prepared_run
from securebench.client.output import print_line, print_note
from securebench.client.output_formats import OutputForm, print_objects
from securebench.client.session.facade import open_session
from securebench.client.session.run_starter import Started
from securebench.client.submit.prepare import PreparedSubmission
from securebench.client.submit.tester_config import TesterConfig
from securebench.client.watch.progress import WarningReporter, stderr_console


def submit(options: RunOptions, form: OutputForm) -> int:
    """Upload the pack, create the BenchmarkRun and leave it; an equal active run is named instead.

    Args:
        options: As for ``securebench run``; what is about following it has no effect.
        form: How the run is named.
    """
    config, prepared = prepared_run(options)
    started = asyncio.run(_submit(config, prepared, options))
    _tell(config, started, form)
    return 0


async def _submit(
    config: TesterConfig, prepared: PreparedSubmission, options: RunOptions
) -> Started:
    reporter = WarningReporter(stderr_console())
    async with open_session(
        config, prepared, reporter, options.target, options.parallelism
    ) as session:
        return await session.submit()


def _tell(config: TesterConfig, started: Started, form: OutputForm) -> None:
    name = started.state.name
    how = "is active already" if started.is_joined else "is created"
    print_note(f"BenchmarkRun {name} {how}; follow it with: securebench watch {name}")
    if form.is_data:
        fields = {"name": name, "run_id": config.run.id, "is_joined": started.is_joined}
        print_objects([fields], form)
    else:
        print_line(f"run={name} run_id={config.run.id}")
