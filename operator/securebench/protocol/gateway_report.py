"""What a gateway says of one launch, for the operator; the agent cannot write any of it.

One file per launch in the run's gateway folder, ``launches/<pod name>.json``, replaced atomically;
beside it ``launches/<pod name>.jsonl`` with one line per decision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LAUNCHES: Final = "launches"
"""Folder of the reports and logs, below the run's gateway folder."""


@dataclass(frozen=True, slots=True)
class RelayReport:
    """What a launch asked its model provider.

    Attributes:
        requests: Sent to the provider, failed and repeated ones included.
        blocked: Refused by the gateway: other path, hosted tool, budget.
        input_tokens: Sum over all answers, cached ones included.
        cached_tokens: Part of the input that came from the provider's cache.
        output_tokens: Sum over all answers.
        failures: Requests that the provider did not answer as it should.
        failure: ``provider_unavailable``, ``provider_auth`` or ``provider_quota`` while the latest
            request ended so, else empty.
        is_key_taken: Whether the provider answered a request with 200, so took the key.
        budget_exhausted: Whether a request was refused because the budget was used up.
        stripped_tools: Kinds of hosted tools that were taken out, sorted.
        models: Names of models in requests that were sent to the provider, sorted.
    """

    requests: int = 0
    blocked: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    failures: int = 0
    failure: str = ""
    is_key_taken: bool = False
    budget_exhausted: bool = False
    stripped_tools: tuple[str, ...] = ()
    models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LaunchReport:
    """What one launch did by its egress.

    Attributes:
        pod: Name of the harness Pod.
        pod_uid: Its uid.
        address: Of the Pod, as the gateway saw it first; its token is good from there only.
        closed: Whether the sidecar said that the harness has ended; then the numbers are final.
        requests: Connections and requests of the proxy route that were allowed.
        blocked: Those that were refused, cut for a wrong server name included.
        bytes_up: From the agent.
        bytes_down: To the agent.
        dropped_lines: Log lines above the bound, counted only.
        relay: Present where the run has a model provider.
    """

    pod: str
    pod_uid: str
    address: str = ""
    closed: bool = False
    requests: int = 0
    blocked: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    dropped_lines: int = 0
    relay: RelayReport | None = None
