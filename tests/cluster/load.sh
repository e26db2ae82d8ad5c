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

load() {
  if [ "$SECUREBENCH_CLUSTER" = kind ]; then
    or_node kind load image-archive --name "$KIND_CLUSTER" "$1"
  else
    load_node "$1"
  fi
}

# One process an archive, as many as there are cores: containerd reads and digests the layers of one on one core.
load_together() { printf '%s\0' "$@" | xargs -0 -n 1 -P "$(nproc)" "${BASH_SOURCE[0]}"; }

main() {
  case "$#" in
    0) ;;
    1) load "$1" ;;
    *) load_together "$@" ;;
  esac
}

main "$@"
