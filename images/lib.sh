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

# archive_of NAME TAG
archive_of() { printf '%s/%s-%s.tar' "$ARCHIVES" "$1" "$2"; }

# keep_only NAME TAG: removes the archives of earlier tags of that image.
keep_only() { find "$ARCHIVES" -name "$1-[0-9a-f]*.tar" ! -name "$1-$2.tar" -delete; }

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
  mkdir -p "$ARCHIVES"
  if has_docker; then docker save -o "$3.part" "$1"
  else buildah_here push -q "$1" "docker-archive:$3.part:$2"; fi
  mv "$3.part" "$3"
}
