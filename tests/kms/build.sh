#!/bin/bash
# Builds a key management service with AWS's API (local-kms, in the version of service/go.mod) and installs its client,
# into the user's cache. A part whose stamp is there is skipped. usage: build.sh
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/cluster/env.sh
. "$HERE/../cluster/env.sh"
# shellcheck source=tests/cluster/lib.sh
. "$HERE/../cluster/lib.sh"
# shellcheck source=tests/cluster/go-modules.sh
. "$HERE/../cluster/go-modules.sh"

BUILT=$SECUREBENCH_CACHE/kms

build_service() { go_build github.com/nsmithuk/local-kms; }

build_client() {
  rm -rf "$BUILT/python"
  python3 -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
    --target "$BUILT/python" -r requirements.lock
}

build_part service
build_part client
