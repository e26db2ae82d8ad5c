#!/bin/bash
# Imports docker-archive or OCI tar files into the cluster; an archive that is there already is skipped.
# usage: load.sh image.tar...
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/cluster/env.sh
. "$HERE/env.sh"
# shellcheck source=tests/cluster/lib.sh
. "$HERE/lib.sh"

# Archives are named by the digest of their inputs, so a name, size and time that were loaded need no second import.
stamp_of() { printf '%s/%s' "$1" "$(basename "$2").$(stat -c %s-%Y "$2")"; }

load_node() {
  local stamp output
  stamp=$(stamp_of "$STATE/loaded" "$1")
  if [ -f "$stamp" ]; then return; fi
  output=$("$BIN/ctr" -a "$STATE/containerd.sock" -n k8s.io images import "$1" 2>&1) || die "importing $1: $output"
  touch "$stamp"
}

main() {
  local archive
  for archive in "$@"; do
    if [ "$SECUREBENCH_CLUSTER" = kind ]; then
      or_node kind load image-archive --name "$KIND_CLUSTER" "$archive"
    else
      load_node "$archive"
    fi
  done
}

main "$@"
