"""Everything that is fuzzed, by name."""

from __future__ import annotations

from fuzz import agents, archives, egress, relay, sockets, texts, trees

TARGETS = {
    target.name: target
    for target in (
        archives.BUNDLE,
        trees.TREE,
        sockets.SOCKET,
        agents.AGENT,
        *egress.TARGETS,
        *relay.TARGETS,
        *texts.TARGETS,
    )
}
