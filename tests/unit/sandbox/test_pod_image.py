"""The image of Pods holds everything that its programs import."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
DOCKERFILE = (ROOT / "images/pod/Dockerfile").read_text(encoding="utf-8")
COPIED = re.compile(r"^COPY (operator/.+) /opt/securebench/(\S+)$", re.MULTILINE)
TRIED = re.compile(r"python3 -I -c '([^']+)'\n")


def test_the_programs_of_pods_import_what_the_image_holds(tmp_path):
    for sources, target in COPIED.findall(DOCKERFILE):
        for source in map(ROOT.joinpath, sources.split()):
            if source.is_dir():
                shutil.copytree(source, tmp_path / target, dirs_exist_ok=True)
            else:
                (tmp_path / target).mkdir(parents=True, exist_ok=True)
                shutil.copy(source, tmp_path / target)
    (program,) = TRIED.findall(DOCKERFILE)
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {program}"
    tried = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False
    )
    assert tried.returncode == 0, tried.stderr
