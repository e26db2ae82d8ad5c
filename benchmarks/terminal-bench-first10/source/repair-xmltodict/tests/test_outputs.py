"""The converter is right again, and what was right before still is."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

APP = Path(os.environ.get("SECUREBENCH_WORKSPACE", "/app"))

PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
import xmltodict
name, text, options = json.load(sys.stdin)
print(json.dumps(getattr(xmltodict, name)(text, **options)))
"""
CASES = {
    "blank": ("<root> </root>", {}, {"root": None}),
    "line breaks": ("<a>\n\t \n</a>", {}, {"a": None}),
    "beside others": ("<a><b>   </b><c>x</c><d/></a>", {}, {"a": {"b": None, "c": "x", "d": None}}),
    "kept when asked": ("<root> </root>", {"strip_whitespace": False}, {"root": " "}),
    "text": ("<a> x y </a>", {}, {"a": "x y"}),
    "text kept": ("<a> x </a>", {"strip_whitespace": False}, {"a": " x "}),
    "attribute": ('<a k="v"> </a>', {}, {"a": {"@k": "v"}}),
    "attribute and text": ('<a k="v"> t </a>', {}, {"a": {"@k": "v", "#text": "t"}}),
    "list": ("<a><b>1</b><b> </b><b>2</b></a>", {}, {"a": {"b": ["1", None, "2"]}}),
    "forced text": ("<a> x </a>", {"force_cdata": True}, {"a": {"#text": "x"}}),
    "mixed": ("<a>x<b/>y</a>", {}, {"a": {"b": None, "#text": "xy"}}),
    "forced list": ("<a><b> </b></a>", {"force_list": ["b"]}, {"a": {"b": [None]}}),
}


def converted(name, text, options):
    done = subprocess.run(
        [sys.executable, "-I", "-c", PROGRAM, str(APP)],
        input=json.dumps([name, text, options]),
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", CASES)
def test_parse(name):
    text, options, want = CASES[name]
    assert converted("parse", text, options) == want


def test_unparse():
    xml = converted("unparse", {"a": {"@k": "v", "b": ["1", None]}}, {"full_document": False})
    assert xml == '<a k="v"><b>1</b><b></b></a>'
