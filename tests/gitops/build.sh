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

ENGINES=$SECUREBENCH_CACHE/gitops
FLUX=(github.com/fluxcd/source-controller github.com/fluxcd/kustomize-controller)
export GOTOOLCHAIN=local CGO_ENABLED=0

go_build() { go build -trimpath -ldflags "-s -w" -o "$ENGINES/bin/" "$@"; }

build_flux() {
  local module
  go_build "${FLUX[@]}"
  rm -rf "$ENGINES/crds"; mkdir -p "$ENGINES/crds"
  for module in "${FLUX[@]}"; do
    cp "$(go list -m -f '{{.Dir}}' "$module")"/config/crd/bases/*.yaml "$ENGINES/crds"
  done
  chmod -R u+w "$ENGINES/crds"
}

build_argocd() { go_build .; }

# build PART: unless it was built from the same files.
build() {
  local part=$1 stamp
  cd "$HERE/$part"
  stamp=$ENGINES/.built-$part-$(cat -- * | sha256sum | cut -c1-12)
  if [ -f "$stamp" ]; then return; fi
  say "building $part (some minutes the first time)"
  "build_$part"
  rm -f "$ENGINES/.built-$part"-*
  touch "$stamp"
}

command -v go >/dev/null || die "Go 1.26 or newer is needed in PATH"
mkdir -p "$ENGINES/bin"
build flux
build argocd
