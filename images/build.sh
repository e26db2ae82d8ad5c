#!/bin/bash
# Builds the operator's and the Pods' image, and the task images where a registry cannot be reached. An image's tag is
# the digest of its inputs; what is there already is not built again. Names are kept in tags.env, archives for the
# cluster in archives/, both below the user's cache. PLATFORMS (linux/amd64,linux/arm64) names what the first two are built
# for; archives of a platform that is not this machine's are in archives-arm64/ or archives-amd64/.
# usage: build.sh [pod|core|docs|all|bad-pack]  pod is the Pods' image alone, which needs no base image; core leaves out
#                                               the task images of the packs, docs all but those of the docs' examples;
#                                               bad-pack adds those of tests/packs
#        build.sh archives [core|all]           prints the archives instead
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=images/lib.sh
. "$HERE/lib.sh"

operator_inputs() { printf '%s\n' images/operator images/supervise operator/requirements.lock operator/securebench pyproject.toml LICENSE; }
pod_inputs() { printf '%s\n' images/pod images/supervise; }

secret_flags() { if [ -n "$(authorities)" ]; then printf -- '--secret\nid=ca,src=%s\n' "$(authorities)"; fi; }

# Where no golang image can be pulled, this machine's Go toolchain is mounted where that image has its own.
toolchain_flags() {
  local cache=$IMAGES/go
  mkdir -p "$cache/build" "$cache/mod"
  printf '%s\n' --build-arg "GO_IMAGE=$PYTHON_IMAGE" --volume "$(go env GOROOT):/usr/local/go:ro" \
    --volume "$cache/build:/root/.cache/go-build" --volume "$cache/mod:/root/go/pkg/mod"
}

# run_build NAME IMAGE PLATFORM
run_build() {
  local flags
  mapfile -t flags < <(secret_flags; label_flags)
  flags+=(--platform "$3" -t "$2" -f "$HERE/$1/Dockerfile")
  if has_docker; then
    DOCKER_BUILDKIT=1 docker build -q "${flags[@]}" "$ROOT"
    return
  fi
  if [ "$1" = operator ]; then require_base "$3"; fi
  mapfile -O "${#flags[@]}" -t flags < <(toolchain_flags)
  buildah_here bud --isolation chroot --layers "${flags[@]}" --build-arg "BUILDPLATFORM=$(own_platform)" \
    --build-arg "PYTHON_IMAGE=$PYTHON_IMAGE" "$ROOT"
}

# require_base PLATFORM: the stand-in has programs for this machine only.
require_base() {
  if [ "$1" = "$(own_platform)" ]; then return; fi
  buildah_here pull -q --platform "$1" "$PYTHON_IMAGE" ||
    die "the operator's image for $1 needs $PYTHON_IMAGE for $1, which no registry here has; build it where one can be reached"
}

# build NAME INPUT...: prints the image's reference.
build() {
  local name=$1 tag image wanted platform; shift
  tag=$(digest "$@")
  image=securebench/securebench-$name:$tag
  wanted=$(platforms)
  for platform in $wanted; do build_for "$platform" "$name" "$tag" "$image"; done
  echo "$image"
}

# build_for PLATFORM NAME TAG IMAGE: in storage, images of other platforms have names of their own.
build_for() {
  local platform=$1 name=$2 tag=$3 image=$4 archive log=$IMAGES/$2.log built=docker.io/$4
  archive=$(archive_of "$name" "$tag" "$platform")
  if [ "$platform" != "$(own_platform)" ]; then built+=-${platform#linux/}; log=$IMAGES/$name-${platform#linux/}.log; fi
  if [ ! -f "$archive" ]; then
    say "building $image for $platform"
    logged "$image" "$log" run_build "$name" "$built" "$platform"
    save "$built" "$built" "$archive"
    keep_only "$name" "$tag" "$platform"
  fi
  say "$image  $platform  $(du -h --apparent-size "$archive" | cut -f1)"
}

# The task images of our packs and of the examples in docs have fixed names, because rows name them: securebench/<pack>-<folder>:1.
# A folder has a Dockerfile of its own, or a file build.args for the Dockerfile that its neighbours share.
build_task() {
  local folder=$1 name tag image archive log sdist
  local -a inputs=("$folder" images/standins)
  name=$(basename "$(dirname "$(dirname "$folder")")")-$(basename "$folder")
  if [ -f "$ROOT/$folder/build.args" ]; then
    sdist=$(sed -n 's/^SDIST=//p' "$ROOT/$folder/build.args")
    inputs+=("${folder%/*}/Dockerfile" ${sdist:+"${folder%/*}/sdists/$sdist"})
  fi
  tag=$(digest "${inputs[@]}")
  image=docker.io/securebench/$name:1
  archive=$(archive_of "task-$name" "$tag")
  log=$IMAGES/task-$name.log
  if [ -f "$archive" ]; then return; fi
  say "building $image"
  logged "$image" "$log" run_task_build "$ROOT/$folder" "$image"
  save "$image" "$image" "$archive"
  keep_only "task-$name" "$tag"
}

run_task_build() {
  local context=$1 line
  local -a flags
  mapfile -t flags < <(secret_flags; label_flags "task image $(basename "$1")")
  if [ -f "$1/build.args" ]; then
    context=${1%/*}
    while IFS= read -r line; do flags+=(--build-arg "$line"); done < "$1/build.args"
  fi
  if has_docker; then DOCKER_BUILDKIT=1 docker build -q "${flags[@]}" -t "$2" "$context"; return; fi
  buildah_here bud --isolation chroot --layers "${flags[@]}" --build-arg "PYTHON_IMAGE=$(task_base)" -t "$2" "$context"
}

# The stand-in has what checkers need; a pulled image is used as it is.
task_base() {
  if buildah_here inspect --type image localhost/task-python >/dev/null 2>&1; then echo localhost/task-python
  else echo "$PYTHON_IMAGE"; fi
}

# task_folders PACKS: the folders of task images of all packs in a folder.
task_folders() {
  (cd "$ROOT" && find "$1" -mindepth 4 -maxdepth 4 \( -path '*/images/*/Dockerfile' -o -path '*/images/*/build.args' \) \
    -printf '%h\n' | sort)
}

# packs_of core|docs|all|bad-pack: the folders of packs whose task images are built.
packs_of() {
  case $1 in
    core) ;;
    docs) echo docs/examples ;;
    bad-pack) echo benchmarks docs/examples tests/packs ;;
    *) echo benchmarks docs/examples ;;
  esac
}

archives() {
  local options=()
  if [ "$1" = core ]; then options=(! -name 'task-*'); fi
  find "$ARCHIVES" -name '*.tar' "${options[@]}" | sort
}

main() {
  local operator pod inputs packs folder
  if [ "${1:-}" = archives ]; then archives "${2:-all}"; return; fi
  mkdir -p "$IMAGES"
  exec 9> "$IMAGES/lock"
  flock 9
  if ! has_docker; then
    "$ROOT/tests/cluster/packages.sh" node
    "$HERE/standins/build.sh"
  fi
  mapfile -t inputs < <(pod_inputs)
  pod=$(build pod "${inputs[@]}")
  if [ "${1:-}" = pod ]; then return; fi
  mapfile -t inputs < <(operator_inputs)
  operator=$(build operator "${inputs[@]}")
  for packs in $(packs_of "${1:-all}"); do
    while read -r folder; do build_task "$folder"; done < <(task_folders "$packs")
  done
  printf 'SECUREBENCH_OPERATOR_IMAGE=%s\nSECUREBENCH_POD_IMAGE=%s\n' "$operator" "$pod" > "$IMAGES/tags.env"
}

main "$@"
