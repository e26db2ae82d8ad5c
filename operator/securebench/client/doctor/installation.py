"""What the doctor checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from securebench.client.volume.link import Exec
from securebench.cluster.port import Cluster, Raw


class QueryableCluster(Cluster, Protocol):
    """A namespace whose API server also answers questions that concern no object of ours."""

    @property
    def namespace(self) -> str:
        """Name of the namespace."""
        ...

    @property
    def server(self) -> str:
        """Address of the API server."""
        ...

    async def ask(self, method: str, path: str, body: Raw | None = None) -> Raw:
        """Send a request to any path and return the object of the answer."""
        ...


@dataclass(frozen=True, slots=True)
class Installation:
    """A cluster and the operator in one of its namespaces.

    Attributes:
        pod: Name of the operator's Pod that the user gave, or None.
        operator_name: The same, or the name in a release that is called as the chart.
        viewers_name: Name of the Pod that serves published results.
        execute_in: Returns how commands run in the operator container of a Pod.
    """

    cluster: QueryableCluster
    pod: str | None
    operator_name: str
    viewers_name: str
    execute_in: Callable[[str], Exec]
