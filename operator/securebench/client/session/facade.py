"""``run_tester_config`` of the Python facade (contract 2.3)."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from securebench.client.session.run_session import RunEnd, RunSession, Surroundings
from securebench.client.session.run_summary import TesterRunSummary
from securebench.client.submit.prepare import Prepared, prepare
from securebench.client.submit.tester_config import TesterConfig, with_tester_overrides
from securebench.client.volume.connection import Place, open_connection
from securebench.client.watch.progress import NullReporter, Reporter
from securebench.core.errors import SecureBenchError

_SUFFIX_BYTES = 3


def run_tester_config(
    config: TesterConfig,
    *,
    limit: int | None = None,
    progress: Reporter | None = None,
    resume: bool = False,
) -> TesterRunSummary:
    """Run a configuration on the cluster of the kubeconfig and return the summary.

    Args:
        config: As ``load_tester_config`` or ``with_tester_overrides`` returns it.
        limit: Only the first rows; None leaves it to the configuration.
        progress: Gets the events of contract 16.1; None for nobody.
        resume: Keep finished records of the last run with this run id, also where the
            configuration does not say so.

    Raises:
        ConfigErrors: The configuration or the pack is wrong; nothing was created.
        SecureBenchError: The cluster refused, or the run ended without finishing its work.
    """
    chosen = with_tester_overrides(
        config,
        limit=config.run.limit if limit is None else limit,
        resume=resume or config.run.resume,
    )
    prepared = prepare(chosen)

    async def execute() -> RunEnd:
        reporter = NullReporter() if progress is None else progress
        async with open_session(chosen, prepared, reporter, Place()) as session:
            return await session.execute()

    end = asyncio.run(execute())
    if end.exit_code != 0 or end.summary is None:
        raise SecureBenchError(end.failure())
    return end.summary


@asynccontextmanager
async def open_session(
    config: TesterConfig,
    prepared: Prepared,
    reporter: Reporter,
    place: Place,
    parallelism: int | None = None,
    *,
    is_watched: bool = False,
) -> AsyncIterator[RunSession]:
    """Connect to the operator and yield a session that is ready to be executed.

    Args:
        config: With the command line's overrides.
        prepared: What ``prepare`` made of it.
        reporter: Gets the progress.
        place: Namespace, context, Pod.
        parallelism: Attempts at the same time; None leaves it to the API's default.
        is_watched: Whether what agents print is reported while they work.
    """
    async with open_connection(place) as connection:
        around = Surroundings(
            cluster=connection.cluster,
            link=connection.link,
            environ=os.environ,
            reporter=reporter,
            sleep=asyncio.sleep,
            suffix=lambda: secrets.token_hex(_SUFFIX_BYTES),
            is_watched=is_watched,
        )
        yield RunSession(config, prepared, around, parallelism)
