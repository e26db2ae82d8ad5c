#!/bin/bash
# Builds Kueue's controller, in the version of controller/go.mod, into the user's cache, with the kustomization that
# installs it. What has its stamp there is skipped. usage: build.sh
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/cluster/env.sh
. "$HERE/../cluster/env.sh"
# shellcheck source=tests/cluster/lib.sh
. "$HERE/../cluster/lib.sh"
# shellcheck source=tests/cluster/go-modules.sh
. "$HERE/../cluster/go-modules.sh"

BUILT=$SECUREBENCH_CACHE/kueue
MODULE=sigs.k8s.io/kueue

build_controller() {
  go_build "$MODULE/cmd/kueue"
  rm -rf "$BUILT/config"
  cp -r "$(module_folder "$MODULE")/config" "$BUILT/config"
  chmod -R u+w "$BUILT/config"
}

build_part controller
