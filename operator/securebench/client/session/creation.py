"""Create a BenchmarkRun together with the Secrets that it owns."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple

from securebench.client.submit import owner_patch, secret_manifest
from securebench.cluster.port import AlreadyExists, Cluster, ObjectKind, Raw
from securebench.errors import ClusterError, TransientClusterError

SecretValues = Mapping[str, Mapping[str, str]]
"""Values of Secrets by the Secret's name."""


class NewRun(NamedTuple):
    """What is created.

    Args:
        name: Name of the BenchmarkRun.
        manifest: The BenchmarkRun.
        secrets: Its Secrets with their values.
        gateway_secret: The one of them that only the gateway may mount, or empty.
    """

    name: str
    manifest: Raw
    secrets: SecretValues
    gateway_secret: str


class RunCreation:
    """Creates runs in one namespace.

    Args:
        cluster: API server, limited to the namespace.
        with_retries: Repeats an idempotent call when the connection breaks.
        warn: Called with a line about a Secret that has to be deleted by hand.
        created: Called with the name as soon as the run exists.
    """

    def __init__(
        self,
        cluster: Cluster,
        with_retries: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]],
        warn: Callable[[str], None],
        created: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._with_retries = with_retries
        self._warn = warn
        self._created = created

    async def create(self, new: NewRun) -> Raw:
        """Create the Secrets, the run, and make the run their owner.

        Raises:
            AlreadyExists: A name is taken; nothing is left behind.
            ClusterError: The API server rejected an object; nothing is left behind.
        """
        made = list[str]()
        try:
            for secret, values in new.secrets.items():
                body = secret_manifest(secret, values, by_gateway=secret == new.gateway_secret)
                await self._create_secret(secret, body, made)
            run = await self._create_run(new.name, new.manifest)
            self._created(new.name)
        except BaseException:
            await self._delete_secrets(made)
            raise
        for secret in made:
            await self._own_secret(secret, run)
        return run

    async def _create_secret(self, name: str, body: Raw, made: list[str]) -> None:
        made.append(name)
        try:
            await self._cluster.create(ObjectKind.SECRET, body)
        except AlreadyExists:
            made.remove(name)
            raise

    async def _delete_secrets(self, secrets: Iterable[str]) -> None:
        """Delete Secrets that were, or may have been, created for a run that failed to start."""
        for name in secrets:
            try:
                await self._cluster.delete(ObjectKind.SECRET, name, uid=None, grace_seconds=None)
            except ClusterError as error:
                self._warn(f"the Secret {name} may still exist; delete it by hand ({error})")

    async def _own_secret(self, name: str, run: Raw) -> None:
        """Make the run own the Secret; the run exists already, so a failure is only a warning."""

        async def own() -> None:
            await self._cluster.patch(ObjectKind.SECRET, name, owner_patch(run))

        try:
            await self._with_retries(own)
        except (ClusterError, asyncio.CancelledError) as error:
            why = str(error) or "interrupted"
            self._warn(f"the Secret {name} must be deleted by hand after the run ({why})")
            if isinstance(error, asyncio.CancelledError):
                raise

    async def _create_run(self, name: str, manifest: Raw) -> Raw:
        """Create the run; if the response got lost, look the run up instead of creating another."""
        try:
            return await self._cluster.create(ObjectKind.BENCHMARK_RUN, manifest)
        except TransientClusterError:
            run = await self._cluster.get(ObjectKind.BENCHMARK_RUN, name)
            if run is None:
                raise
            return run
