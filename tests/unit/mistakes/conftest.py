from __future__ import annotations

from unit.cli.conftest import interrupt, shell

__all__ = ["interrupt", "shell"]
