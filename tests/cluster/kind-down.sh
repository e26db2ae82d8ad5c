#!/bin/bash
# Removes the kind cluster of this project, and no other.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/cluster/env.sh
. "$HERE/env.sh"

if command -v kind >/dev/null; then kind delete cluster --name "$KIND_CLUSTER"; fi
