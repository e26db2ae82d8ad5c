#!/bin/bash
# Pushes what images/build.sh built to a registry: the operator's and the Pods' image for each of PLATFORMS, with their SBOMs where
# `make sbom` wrote them; with `all` the task images of packs too, but no stand-in of a public image. The chart's values that name the
# first two by digest are printed and kept in pushed.yaml, below the user's cache.
# usage: push.sh HOST/PATH [core|all]; TAG replaces the digest of the inputs as the tag of the first two
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=images/lib.sh
. "$HERE/lib.sh"
# shellcheck source=images/registry.sh
. "$HERE/registry.sh"

SBOM_TYPE=application/vnd.cyclonedx+json

# Registries on this machine speak plain HTTP; crane knows that by itself.
plain_http() { case $1 in localhost:* | 127.0.0.1:*) echo --plain-http ;; esac; }

# attach_sbom REFERENCE ARCHIVE: as a referrer of the image (OCI 1.1), or by a tag where a registry knows none.
attach_sbom() {
  local sbom
  sbom=$(sbom_of "$2")
  if [ ! -f "$sbom" ]; then say "${1##*/} goes without an SBOM: make sbom writes it"; return; fi
  # shellcheck disable=SC2046  # one word or none
  (cd "$(dirname "$sbom")" && "$ORAS" attach $(plain_http "$1") --artifact-type "$SBOM_TYPE" "$1" \
    "$(basename "$sbom"):$SBOM_TYPE" >/dev/null) || die "the SBOM of $1 was not attached"
}

# push_image NAME IMAGE: for all platforms; prints its reference by digest.
push_image() {
  local name=$1 tag=${2##*:} target wanted platform archive reference
  local -a references=()
  target=$REGISTRY/securebench-$name:${TAG:-$tag}
  wanted=$(platforms)
  for platform in $wanted; do
    archive=$(archive_of "$name" "$tag" "$platform")
    [ -f "$archive" ] || die "$2 is not built for $platform: PLATFORMS=$platform make images"
    reference=$(push_archive "$archive" "$target-${platform#linux/}")
    attach_sbom "$reference" "$archive"
    references+=(-m "$reference")
  done
  crane "$target" index append "${references[@]}" -t "$target" >/dev/null
  echo "${target%:*}@$(crane "$target" digest "$target")"
}

push_tasks() {
  local archive name
  for archive in "$ARCHIVES"/task-*.tar; do
    [ -f "$archive" ] || continue
    name=$(basename "${archive#*/task-}" .tar)
    push_archive "$archive" "$REGISTRY/${name%-*}:1" >&2
  done
}

# warn_of_standins: a registry should not get them unnoticed.
warn_of_standins() {
  if "$CRANE" config "$1" | grep -q '"securebench.dev/standin"'; then
    say "warning: $1 is built on a local stand-in for python:3.11-slim (images/README.md)"
  fi
}

main() {
  local operator pod
  REGISTRY=${1:-}
  require_registry "$REGISTRY"
  [ -f "$IMAGES/tags.env" ] || die "no image is built yet: make images"
  # shellcheck source=/dev/null
  . "$IMAGES/tags.env"
  CRANE=$(crane_tool "$(own_platform)")
  ORAS=$(oras_tool)
  operator=$(push_image operator "$SECUREBENCH_OPERATOR_IMAGE")
  pod=$(push_image pod "$SECUREBENCH_POD_IMAGE")
  warn_of_standins "$operator"
  if [ "${2:-core}" = all ]; then push_tasks; fi
  chart_values "$operator" "$pod" | tee "$IMAGES/pushed.yaml"
  say "written to $IMAGES/pushed.yaml; install with: helm install securebench charts/securebench --values $IMAGES/pushed.yaml"
}

main "$@"
