"""Check that slug.py makes one hyphen of every run of white space and none at the ends.

The candidate's code runs in a process of its own; what it prints is compared here.
"""

import json
import subprocess
import sys
from pathlib import Path

EXPECTED = {
    "Hello World": "hello-world",
    "  A   wide  Title ": "a-wide-title",
    "Tabs\tand spaces": "tabs-and-spaces",
    "": "",
}
CALL = """
import json, runpy, sys
slug = runpy.run_path("slug.py")["slug"]
print(json.dumps({title: slug(title) for title in json.loads(sys.argv[1])}))
"""

titles = json.dumps(list(EXPECTED))
argv = [sys.executable, "-I", "-B", "-c", CALL, titles]
done = subprocess.run(argv, capture_output=True, check=False, text=True, timeout=30)
try:
    found = json.loads(done.stdout)
except ValueError:
    sys.exit(f"slug.py gave no answer: {done.stderr}")
if found != EXPECTED:
    sys.exit(f"slug.py is wrong: {found}")
if not Path("titles.txt").exists():
    sys.exit("titles.txt is gone")
print("slug.py is right")
