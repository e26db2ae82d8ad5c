#!/bin/bash
# Restores a bundle of `make bundle`: loads its images into a registry, or into the containerd of this node, and prints the commands
# that install the chart with them. Needs no network but that registry.
# usage: restore.sh registry HOST/PATH   credentials as `docker login` keeps them; a registry's own authority by SSL_CERT_FILE
#        restore.sh containerd           with ctr, on each node; CONTAINERD_ADDRESS names another socket than containerd's usual one
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

say() { printf '%s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

# shellcheck source=images/registry.sh
. "$HERE/registry.sh"
CRANE=$HERE/bin/crane

verify() {
  (cd "$HERE" && sha256sum --check --strict --quiet SHA256SUMS >&2) ||
    die "the bundle in $HERE is not what was packed: unpack its archive again, or carry it over again"
}

# images: archive and reference of each image, the operator's and the Pods' first.
images() { cat "$HERE/images/list"; }

# reference_of NAME: of the operator's or the Pods' image, as it is called in its archive.
reference_of() { images | awk -v name="$1" '$1 ~ "^" name "-" { print $2 }'; }

to_registry() {
  local archive reference pushed operator='' pod=''
  require_registry "$1"
  while read -r archive reference; do
    say "pushing ${reference##*/}"
    pushed=$(push_archive "$HERE/images/$archive" "$1/${reference##*/}")
    case $archive in
      operator-*) operator=$pushed ;;
      pod-*) pod=$pushed ;;
    esac
  done < <(images)
  chart_values "$operator" "$pod" > "$HERE/values.yaml"
}

to_containerd() {
  local archive reference
  command -v ctr >/dev/null || die "there is no ctr here; run this on a node with containerd, or load into a registry"
  while read -r archive reference; do
    say "importing $reference"
    ctr --namespace "${CONTAINERD_NAMESPACE:-k8s.io}" images import "$HERE/images/$archive" >/dev/null ||
      die "$archive was not imported; CONTAINERD_ADDRESS names another socket of containerd"
  done < <(images)
  chart_values "$(reference_of operator)" "$(reference_of pod)" > "$HERE/values.yaml"
}

next_steps() {
  cat <<END
kubectl apply --server-side --force-conflicts -f $HERE/crds
helm upgrade --install securebench $HERE/chart/$(basename "$HERE"/chart/*.tgz) --namespace bench --create-namespace --wait --values $HERE/values.yaml
python3 -m pip install --no-index --find-links $HERE/wheels securebench
END
}

main() {
  verify
  case ${1:-} in
    registry) to_registry "${2:-}" ;;
    containerd) to_containerd ;;
    *) die "usage: restore.sh registry HOST/PATH | restore.sh containerd" ;;
  esac
  next_steps
}

main "$@"
