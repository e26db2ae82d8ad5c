"""The operator's log on stderr: lines for people, or one JSON object a line for a log store."""

from __future__ import annotations

import logging

from pythonjsonlogger.json import JsonFormatter

from securebench.controller.loop_tasks import RunFilter
from securebench.controller.settings import LogFormat

_FIELDS = ("asctime", "levelname", "name", "message")
_TEXT = logging.Formatter("%(asctime)s %(levelname)s %(message)s")


def configure_logs(form: LogFormat) -> None:
    """Send all records from INFO up to stderr in the given form.

    kopf's own records about single objects are left out below WARNING: each event would be one.
    """
    handler = logging.StreamHandler()
    handler.addFilter(RunFilter())
    handler.setFormatter(_TEXT if form is LogFormat.TEXT else _json())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)


def _json() -> logging.Formatter:
    names = {"asctime": "time", "levelname": "level", "name": "logger"}
    return JsonFormatter(_FIELDS, rename_fields=names)
