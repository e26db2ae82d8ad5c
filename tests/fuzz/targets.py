"""Everything that is fuzzed, by name."""

from __future__ import annotations

from fuzz import agents, archives, egress, relay, sockets, texts

TARGETS = {
    target.name: target
    for target in (
        archives.BUNDLE,
        sockets.SOCKET,
        agents.AGENT,
        *egress.TARGETS,
        *relay.TARGETS,
        *texts.TARGETS,
    )
}
