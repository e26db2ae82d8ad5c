#!/bin/bash
# Writes what is in the built images as CycloneDX documents (JSON), each beside its archive, and prints their paths; one that is
# there is not written again. usage: sbom.sh [core|all]   all has the task images of the packs too
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=images/lib.sh
. "$HERE/lib.sh"

# write_sbom ARCHIVE
write_sbom() {
  local name sbom
  name=$(basename "${1%-*}")
  sbom=$(sbom_of "$1")
  if [ ! -f "$sbom" ]; then
    if ! SYFT_CHECK_FOR_APP_UPDATE=false "$SYFT" scan --quiet --select-catalogers -file "docker-archive:$1" \
      --source-name "securebench-$name" --source-version "$(version)" --output "cyclonedx-json=$sbom.part"; then
      rm -f "$sbom.part"
      die "no SBOM of $1 (see above)"
    fi
    mv "$sbom.part" "$sbom"
  fi
  echo "$sbom"
}

main() {
  local archives archive
  archives=$("$HERE/build.sh" archives "${1:-core}" | sed '/\/standin-/d'; find "$ARCHIVES"-* -name '*.tar' 2>/dev/null || true)
  [ -n "$archives" ] || die "no image is built yet: make images"
  SYFT=$(syft_tool)
  for archive in $archives; do write_sbom "$archive"; done
}

main "$@"
