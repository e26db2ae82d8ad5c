import os
import sys
from importlib import import_module

sys.path.insert(0, os.environ["SECUREBENCH_WORKSPACE"])


def test_it():
    assert import_module("solution").answer() == 42
