"""Keep the committed inputs that reach something of their own: ``python -m fuzz.minimise``.

Greedy: the input that adds most pairs of lines to what seeds and kept inputs reach is kept, the
shorter of two equals; what then adds nothing is deleted.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from fuzz.loop import CORPUS, Coverage, Target, emptied, guarded, limited, scratch
from fuzz.targets import TARGETS


def redundant(target: Target, inputs: Mapping[str, bytes]) -> list[str]:
    """Return the names of the inputs without which the others reach as much."""
    coverage = Coverage(target.traced)
    _edges(
        target, coverage, inputs
    )  # what only the first input reaches is no merit: imports, caches
    seeds = {str(number): data for number, data in enumerate(target.seeds)}
    known = set[int]().union(*_edges(target, coverage, seeds).values())
    reached = _edges(target, coverage, inputs)
    left = sorted(inputs, key=lambda name: (len(inputs[name]), name))
    while left:
        best = max(left, key=lambda name: len(reached[name] - known))
        if reached[best] <= known:
            break
        known |= reached[best]
        left.remove(best)
    return left


def _edges(
    target: Target, coverage: Coverage, inputs: Mapping[str, bytes]
) -> dict[str, frozenset[int]]:
    found = {}
    with limited(), scratch() as root:
        for name, data in inputs.items():
            emptied(root)
            with coverage.tracing():
                guarded(target, data, root)
            found[name] = coverage.reached
    return found


def main() -> None:
    """Delete what is redundant, and say how much stays."""
    for name, target in TARGETS.items():
        paths = {path.name: path for path in sorted((CORPUS / name).glob("*"))}
        surplus = redundant(target, {key: path.read_bytes() for key, path in paths.items()})
        for key in surplus:
            paths[key].unlink()
        sys.stdout.write(f"{name}: {len(paths) - len(surplus)} of {len(paths)} inputs stay\n")


if __name__ == "__main__":
    main()
