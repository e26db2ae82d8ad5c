"""Check that settings.ini has the new port and is otherwise as it was."""

import configparser
import sys
from pathlib import Path

EXPECTED = {
    "client": {"port": "5432", "retries": "3"},
    "server": {"host": "127.0.0.1", "port": "9090", "workers": "4"},
}

settings = configparser.ConfigParser(interpolation=None)
settings.read_string(Path("settings.ini").read_text(encoding="utf-8"))
found = {section: dict(settings[section]) for section in settings.sections()}
if found != EXPECTED:
    sys.exit(f"settings.ini holds {found}")
print("settings.ini is right")
