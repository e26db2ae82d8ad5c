#!/bin/bash
# Builds the GitOps engines, in the versions of the go.mod files below this folder, into the user's cache: Flux's
# controllers with their CRDs, and the runner of Argo CD's health checks. A part whose stamp is there is skipped.
# usage: build.sh
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/cluster/env.sh
. "$HERE/../cluster/env.sh"
# shellcheck source=tests/cluster/lib.sh
. "$HERE/../cluster/lib.sh"
# shellcheck source=tests/cluster/go-modules.sh
. "$HERE/../cluster/go-modules.sh"

BUILT=$SECUREBENCH_CACHE/gitops
FLUX=(github.com/fluxcd/source-controller github.com/fluxcd/kustomize-controller)

build_flux() {
  local module
  go_build "${FLUX[@]}"
  rm -rf "$BUILT/crds"; mkdir -p "$BUILT/crds"
  for module in "${FLUX[@]}"; do
    cp "$(module_folder "$module")"/config/crd/bases/*.yaml "$BUILT/crds"
  done
  chmod -R u+w "$BUILT/crds"
}

build_argocd() { go_build .; }

build_part flux
build_part argocd
