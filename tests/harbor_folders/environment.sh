#!/bin/bash
# Makes the environment with the classes of the package harbor, which needs Python 3.12 or newer, and prints its
# interpreter. usage: environment.sh (HARBOR_PYTHON names an interpreter)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/securebench
BUILT=$CACHE/harbor-$(sha256sum requirements.lock | cut -c1-12)

is_new_enough() { "$1" -c 'import sys, venv; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; }

interpreter() {
  local candidate
  for candidate in "${HARBOR_PYTHON:-}" python3.12 python3.13 python3.14 python3 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[2-9].*/bin/python3; do
    [ -z "$candidate" ] || ! is_new_enough "$candidate" || { echo "$candidate"; return; }
  done
  echo "harbor needs Python 3.12 or newer; name one with HARBOR_PYTHON=/path/to/python3.12" >&2
  return 1
}

if [ ! -e "$BUILT/.complete" ]; then
  rm -rf "$BUILT"
  "$(interpreter)" -m venv "$BUILT"
  "$BUILT/bin/pip" install --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes -r requirements.lock
  touch "$BUILT/.complete"
fi
echo "$BUILT/bin/python"
