"""``run_tester_config`` of the Python facade (contract 2.3)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from securebench.client.progress import NullReporter, Reporter
from securebench.client.session.dependencies import NOT_WATCHING, SessionDependencies, Watching
from securebench.client.session.run_session import RunEnd, RunSession
from securebench.client.session.run_summary import TesterRunSummary
from securebench.client.submit import PreparedSubmission, prepare, random_suffix
from securebench.client.tester_config import TesterConfig, with_tester_overrides
from securebench.client.volume import ClusterTarget, open_connection
from securebench.errors import SecureBenchError


def run_tester_config(
    config: TesterConfig,
    *,
    limit: int | None = None,
    progress: Reporter | None = None,
    resume: bool = False,
) -> TesterRunSummary:
    """Run a configuration on the cluster of the kubeconfig and return the summary.

    Args:
        config: From ``load_tester_config`` or ``with_tester_overrides``.
        limit: Only the first rows; None uses the configuration's limit.
        progress: Receives the events of contract 16.1.
        resume: Keep finished records of the last run with this run id, even if the configuration
            does not ask for it.

    Raises:
        ConfigErrors: The configuration or the pack is invalid; nothing was created.
        SecureBenchError: The cluster failed, or the run ended without finishing its work.
    """
    chosen = with_tester_overrides(
        config,
        limit=config.run.limit if limit is None else limit,
        resume=resume or config.run.resume,
    )
    prepared = prepare(chosen)

    async def execute() -> RunEnd:
        reporter = NullReporter() if progress is None else progress
        async with open_session(chosen, prepared, reporter, ClusterTarget()) as session:
            return await session.execute()

    end = asyncio.run(execute())
    if end.exit_code != 0 or end.summary is None:
        raise SecureBenchError(end.failure())
    return end.summary


@asynccontextmanager
async def open_session(
    config: TesterConfig,
    prepared: PreparedSubmission,
    reporter: Reporter,
    target: ClusterTarget,
    parallelism: int | None = None,
    watching: Watching = NOT_WATCHING,
) -> AsyncIterator[RunSession]:
    """Connect to the operator and yield a session that is ready to execute.

    Args:
        config: With the command line's overrides applied.
        prepared: Result of ``prepare`` for this configuration.
        reporter: Receives progress events.
        target: Namespace, context and operator Pod.
        parallelism: Concurrent attempts; None uses the API's default.
        watching: What to report while attempts are in flight.
    """
    async with open_connection(target) as connection:
        deps = SessionDependencies(
            cluster=connection.cluster,
            link=connection.link,
            environ=os.environ,
            reporter=reporter,
            sleep=asyncio.sleep,
            user_name=connection.cluster.user_name,
            suffix=random_suffix,
            watching=watching,
        )
        yield RunSession(config, prepared, deps, parallelism)
