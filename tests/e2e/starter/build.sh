#!/bin/bash
# Builds the task image of this folder, once for every content, and loads it into the local cluster.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../../images" && pwd)
# shellcheck source=images/lib.sh
. "$HERE/lib.sh"

IMAGE=docker.io/securebench-tests/starter:local
CONTEXT=$ROOT/tests/e2e/starter

build() {
  if has_docker; then docker build -q -t "$IMAGE" "$CONTEXT"
  else buildah_here bud -q --isolation chroot --build-arg "PYTHON_IMAGE=$PYTHON_IMAGE" -t "$IMAGE" "$CONTEXT"; fi
}

main() {
  local archive
  archive=$IMAGES/tests/starter-$(digest tests/e2e/starter).tar
  if [ ! -f "$archive" ]; then
    mkdir -p "${archive%/*}"
    find "${archive%/*}" -name 'starter-*.tar' -delete
    build >&2
    save "$IMAGE" "$IMAGE" "$archive"
  fi
  "$ROOT/tests/cluster/cluster" load "$archive"
}

main "$@"
