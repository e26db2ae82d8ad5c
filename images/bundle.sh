#!/bin/bash
# Packs what an installation without a network needs into one archive: images, chart, CRDs, JSON Schemas, SBOMs, the command line with
# its locked wheels, checksums, and restore.sh, which loads it. For this machine's platform and Python. Prints the archive's path.
# usage: bundle.sh [core|all]   all has the task images of the packs too; needs helm in PATH, and PYTHON with pip and setuptools
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=images/lib.sh
. "$HERE/lib.sh"

BUNDLES=${XDG_CACHE_HOME:-$HOME/.cache}/securebench/bundle

# reference_in ARCHIVE: what the image is called in it.
reference_in() { tar -xOf "$1" manifest.json | sed -n 's/.*"RepoTags":\["\([^"]*\)".*/\1/p'; }

# add_images FOLDER WHICH
add_images() {
  local archives archive
  archives=$("$HERE/build.sh" archives "$2" | sed '/\/standin-/d')
  [ -n "$archives" ] || die "no image is built yet: make images"
  mkdir "$1/images" "$1/sbom"
  for archive in $archives; do
    ln "$archive" "$1/images/" 2>/dev/null || cp "$archive" "$1/images/"
    printf '%s %s\n' "$(basename "$archive")" "$(reference_in "$archive")" >> "$1/images/list"
    if [ -f "$(sbom_of "$archive")" ]; then cp "$(sbom_of "$archive")" "$1/sbom/"; fi
  done
}

# add_chart FOLDER
add_chart() {
  mkdir "$1/chart" "$1/schemas"
  helm package "$ROOT/charts/securebench" --destination "$1/chart" >/dev/null
  cp -r "$ROOT/charts/securebench/crds" "$1/crds"
  cp "$ROOT"/operator/securebench/schemas/*.json "$1/schemas/"
}

# add_command_line FOLDER: the package as a wheel, and what it needs as the lock has it.
add_command_line() {
  "${PYTHON:-python3}" -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: \
    --dest "$1/wheels" -r "$ROOT/operator/requirements.lock"
  # A copy, because setuptools leaves folders behind where it builds.
  mkdir "$1.build"
  cp -r "$ROOT/pyproject.toml" "$ROOT/LICENSE" "$ROOT/README.md" "$1.build/"
  mkdir "$1.build/operator" && cp -r "$ROOT/operator/securebench" "$1.build/operator/"
  "${PYTHON:-python3}" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-index \
    --wheel-dir "$1/wheels" "$1.build"
}

# add_restore FOLDER
add_restore() {
  mkdir "$1/bin"
  cp "$(crane_tool "$(own_platform)")" "$1/bin/crane"
  cp "$HERE/restore.sh" "$HERE/registry.sh" "$1/"
  cp "$ROOT/docs/how-to/air-gapped.md" "$1/README.md"
  (cd "$1" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum) > "$1.sums"
  mv "$1.sums" "$1/SHA256SUMS"
}

main() {
  local name work platform
  command -v helm >/dev/null || die "helm is missing in PATH, to package the chart"
  platform=$(own_platform)
  name=securebench-$(version)-${platform/\//-}
  mkdir -p "$BUNDLES"
  work=$(mktemp -d "$BUNDLES/work.XXXXXX")
  # shellcheck disable=SC2064  # its value of now
  trap "rm -rf '$work'" EXIT
  mkdir "$work/$name"
  add_images "$work/$name" "${1:-core}"
  add_chart "$work/$name"
  add_command_line "$work/$name"
  add_restore "$work/$name"
  tar -czf "$work/$name.tar.gz" -C "$work" --owner 0 --group 0 "$name"
  mv "$work/$name.tar.gz" "$BUNDLES/"
  say "$(du -h "$BUNDLES/$name.tar.gz" | cut -f1)  restore with: tar -xzf $name.tar.gz && $name/restore.sh"
  echo "$BUNDLES/$name.tar.gz"
}

main "$@"
