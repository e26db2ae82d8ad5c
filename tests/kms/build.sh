#!/bin/bash
# Builds a key management service with AWS's API (local-kms, in the version of service/go.mod) and installs its client,
# into the user's cache. A part whose stamp is there is skipped. usage: build.sh
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/cluster/env.sh
. "$HERE/../cluster/env.sh"
# shellcheck source=tests/cluster/lib.sh
. "$HERE/../cluster/lib.sh"

KMS=$SECUREBENCH_CACHE/kms
stamp=$KMS/.built-$(cat "$HERE"/service/* "$HERE/requirements.lock" | sha256sum | cut -c1-12)
if [ -f "$stamp" ]; then exit 0; fi
command -v go >/dev/null || die "Go 1.26 or newer is needed in PATH"
say "building local-kms and installing its client"
rm -rf "$KMS"
mkdir -p "$KMS/bin"
cd "$HERE/service"
GOTOOLCHAIN=local CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$KMS/bin/" github.com/nsmithuk/local-kms
python3 -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
  --target "$KMS/python" -r "$HERE/requirements.lock"
touch "$stamp"
