"""Command lines of the programs inside Pods.

Source: docs/architecture.md, "supervise" and "Courier and text verifier".
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 1
PYTHON = "python3"
POD_SUPERVISE = "supervise"
"""In our Pod image, found in its PATH; task images get a copy of it."""


def module_argv(module: str, spec: Mapping[str, object]) -> list[str]:
    """Return the command line of a module of ``securebench.pod`` in our Pod image."""
    return [PYTHON, "-I", "-m", f"securebench.pod.{module}", "--spec", encode(spec)]


def supervise_argv(program: str, verb: str, spec: Mapping[str, object]) -> list[str]:
    """Return the command line of supervise.

    Args:
        program: Where it lies in the container.
        verb: ``prepare``, ``copy`` or ``run``.
        spec: What to do, without ``version``.
    """
    return [program, verb, "--spec", encode(spec)]


def encode(spec: Mapping[str, object]) -> str:
    """Return a specification with its version as one line of JSON in ASCII.

    No ``$`` is left in it: the kubelet would replace ``$(NAME)`` by the variable's value, which may
    be a secret, and ``$$`` by ``$``.
    """
    text = json.dumps({"version": VERSION, **spec}, separators=(",", ":"), allow_nan=False)
    return text.replace("$", "\\u0024")
