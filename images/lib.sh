# shellcheck shell=bash
# shellcheck disable=SC2034  # read by the scripts that source this file
# Where images are kept and how they are built. Sourced by the scripts of this folder.

# A failure inside $(...) ends the script too.
shopt -s inherit_errexit

ROOT=$(cd "$HERE/.." && pwd)
IMAGES=${XDG_CACHE_HOME:-$HOME/.cache}/securebench/images
ARCHIVES=$IMAGES/archives
PYTHON_IMAGE=docker.io/library/python:3.11-slim

say() { printf '%s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

# With SECUREBENCH_CLUSTER=node Docker is left alone, also where it answers.
has_docker() { [ "${SECUREBENCH_CLUSTER:-}" != node ] && command -v docker >/dev/null && timeout 10 docker info >/dev/null 2>&1; }

# Storage of our own, so that the user's images stay untouched. Overlay cannot lie on overlay.
storage_driver() {
  mkdir -p "$IMAGES"
  if [ "$(stat -f -c %T "$IMAGES")" = overlayfs ]; then echo vfs; else echo overlay; fi
}

buildah_here() {
  buildah --storage-driver "$(storage_driver)" --root "$IMAGES/storage" --runroot "$IMAGES/run" "$@"
}

# digest PATH...: twelve hexadecimal digits that name the content of files and folders of the repository.
digest() {
  (cd "$ROOT" && find "$@" -type f ! -path '*/__pycache__/*' ! -path '*/.*/*' ! -name '*.pyc' -print0 | LC_ALL=C sort -z |
    xargs -0 sha256sum | sha256sum | cut -c1-12)
}

# The bundle of certificate authorities that this machine's tools are told to use, if there is one.
authorities() { printf '%s' "${PIP_CERT:-${SSL_CERT_FILE:-}}"; }

# The platform of this machine, as registries call it.
own_platform() {
  case $(uname -m) in
    x86_64) echo linux/amd64 ;;
    aarch64) echo linux/arm64 ;;
    *) die "images are built on x86_64 and aarch64, not on $(uname -m)" ;;
  esac
}

# platforms: those that the operator's and the Pods' image are built for, one a line; PLATFORMS=linux/amd64,linux/arm64.
platforms() {
  local platform
  for platform in $(tr ',' ' ' <<< "${PLATFORMS:-$(own_platform)}"); do
    case $platform in
      linux/amd64 | linux/arm64) echo "$platform" ;;
      *) die "PLATFORMS names $platform; there are linux/amd64 and linux/arm64" ;;
    esac
  done
}

# archives_for PLATFORM: the folder of its archives. Only this machine's own are loaded into the local cluster.
archives_for() { if [ "$1" = "$(own_platform)" ]; then echo "$ARCHIVES"; else echo "$ARCHIVES-${1#linux/}"; fi; }

# archive_of NAME TAG [PLATFORM]
archive_of() { printf '%s/%s-%s.tar' "$(archives_for "${3:-$(own_platform)}")" "$1" "$2"; }

# sbom_of ARCHIVE: its CycloneDX document, beside it.
sbom_of() { printf '%s.cdx.json' "${1%.tar}"; }

# keep_only NAME TAG [PLATFORM]: removes the archives and SBOMs of earlier tags of that image.
keep_only() {
  find "$(archives_for "${3:-$(own_platform)}")" \( -name "$1-[0-9a-f]*.tar" -o -name "$1-[0-9a-f]*.cdx.json" \) \
    ! -name "$1-$2.*" -delete
}

version() { sed -n 's/^appVersion: //p' "$ROOT/charts/securebench/Chart.yaml"; }

# The commit that is built; outside of a clone there is none.
revision() { git -C "$ROOT" describe --always --abbrev=40 --dirty --exclude '*' 2>/dev/null || echo unknown; }

# label_flags [TITLE]: what an image says about this build; IMAGE_SOURCE is the address of the repository. The rest is in Dockerfiles.
label_flags() {
  local name=org.opencontainers.image
  printf -- '--label\n%s\n' "$name.version=$(version)" "$name.revision=$(revision)" "$name.created=$(date -u +%FT%TZ)"
  if [ -n "${IMAGE_SOURCE:-}" ]; then printf -- '--label\n%s\n' "$name.source=$IMAGE_SOURCE"; fi
  if [ -n "${1:-}" ]; then printf -- '--label\n%s\n' "$name.title=$1"; fi
}

# go_tool MODULE NAME PACKAGE PLATFORM: the path of a program, built from the versions that images/MODULE/go.sum pins.
go_tool() {
  local module=$HERE/$1 platform=$4 folder
  folder=$IMAGES/bin/$(digest "images/$1" | cut -c1-12)-${platform#linux/}
  if [ ! -x "$folder/$2" ]; then
    command -v go >/dev/null || die "Go 1.26 or newer is needed in PATH, to build $2"
    say "building $2"
    mkdir -p "$folder"
    (cd "$module" && GOFLAGS=-mod=readonly CGO_ENABLED=0 GOARCH=${platform#linux/} go build -trimpath -ldflags "-s -w" \
      -o "$folder/$2.part" "$3" && mv "$folder/$2.part" "$folder/$2") || die "building $2 failed (see above)"
  fi
  echo "$folder/$2"
}

# crane_tool PLATFORM
crane_tool() { go_tool tools crane github.com/google/go-containerregistry/cmd/crane "$1"; }
oras_tool() { go_tool tools oras oras.land/oras/cmd/oras "$(own_platform)"; }
syft_tool() { go_tool sbom syft github.com/anchore/syft/cmd/syft "$(own_platform)"; }

# logged IMAGE LOG COMMAND...: runs a command that builds an image, with a log of its own.
logged() {
  local image=$1 log=$2 status; shift 2
  # Not "(...) || ...": behind that a shell goes on after a failure, whatever it sets.
  set +e
  (set -e; "$@") > "$log" 2>&1
  status=$?
  set -e
  if [ "$status" -ne 0 ]; then tail -n 30 "$log" >&2; die "building $image failed: $log"; fi
}

# save IMAGE REFERENCE ARCHIVE: exports a built image under the name that Pods use.
save() {
  mkdir -p "$(dirname "$3")"
  if has_docker; then docker save -o "$3.part" "$1"
  else buildah_here push -q "$1" "docker-archive:$3.part:$2"; fi
  mv "$3.part" "$3"
}
