#!/bin/bash
# Builds the images that put codex, Claude Code, opencode and mini-swe-agent beside a task image, from the npm packages that
# packages.lock pins and the Python packages of mini-swe-agent/requirements.lock.
# Archives lie in overlays/, names in overlays.env and, as values of the chart, in overlays.yaml, all below the user's
# cache; what is there already is not built again. Claude Code may not be passed on: its image is for the cluster of the one who builds it.
# usage: build.sh           builds
#        build.sh archives  prints the archives instead
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=images/lib.sh
. "$HERE/lib.sh"

OVERLAYS=$IMAGES/overlays
LOCK=$HERE/overlays/packages.lock

# locked AGENT: version, npm package and its integrity for this machine; of mini-swe-agent the version alone.
locked() {
  if [ "$1" = mini-swe-agent ]; then
    sed -n 's/^mini-swe-agent==\([^ ]*\).*/\1/p' "$HERE/overlays/mini-swe-agent/requirements.lock"
    return
  fi
  awk -v agent="$1" -v machine="$(uname -m)" '$1 == agent && $3 == machine { print $2, $4, $5 }' "$LOCK"
}

version_of() { locked "$1" | cut -d' ' -f1; }

# values KEY IMAGE AGENT: the chart's values for an agent.
values() {
  printf '    %s:\n      images: {"%s": "%s"}\n      latest: "%s"\n' "$1" "$(version_of "$3")" "$2" "$(version_of "$3")"
}

require_npm() {
  if command -v npm >/dev/null; then return; fi
  command -v apt-get >/dev/null && [ "$(id -u)" -eq 0 ] || die "npm is missing: install it"
  say "installing npm"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends npm >/dev/null
}

# require_debian AGENT: its image has files of Debian packages.
require_debian() {
  if command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null; then return; fi
  die "apt-get or dpkg-deb is missing: build the image of $1 on Debian or Ubuntu"
}

# python_minor: version of the distribution's Python, such as 3.11.
python_minor() { apt-cache depends python3-minimal | sed -n 's/.*Depends: python\(3\.[0-9]*\)-minimal.*/\1/p' | head -n 1; }

# unpack PACKAGE INTEGRITY FOLDER: downloads and checks an npm package and unpacks it.
unpack() {
  local file=$3/package.tgz found
  mkdir -p "$3"
  (cd "$3" && npm pack --silent --loglevel=error "$1" >/dev/null && mv ./*-*.tgz package.tgz)
  found=sha512-$(openssl dgst -sha512 -binary "$file" | base64 -w0)
  [ "$found" = "$2" ] || die "$1 is not the package of packages.lock: its integrity is $found"
  tar -xzf "$file" -C "$3" --strip-components=1
  rm "$file"
}

# unpack_locked AGENT FOLDER
unpack_locked() {
  local package integrity
  read -r _ package integrity < <(locked "$1")
  unpack "$package" "$integrity" "$2"
}

# unpack_debian PACKAGE FOLDER
unpack_debian() {
  mkdir -p "$2"
  (cd "$2" && { apt-get download -qq "$1" || { apt-get update -qq && apt-get download -qq "$1"; }; } >&2)
  dpkg-deb -x "$2/$1"_*.deb "$2"
  rm "$2/$1"_*.deb
}

# put TARGET FILE: copies a program.
put() { install -D -m 0755 "$2" "$1"; }

fill_codex() {
  local vendor
  unpack_locked codex "$1/npm"
  vendor=$(find "$1/npm/vendor" -mindepth 1 -maxdepth 1 -name '*-linux-musl')
  put "$2/bin/codex" "$vendor/bin/codex"
  put "$2/bin/codex-code-mode-host" "$vendor/bin/codex-code-mode-host"
  put "$2/codex-path/rg" "$vendor/codex-path/rg"
}

# The vendor's file stays as it is: the loader beside it starts it in any image, with a shell and a ripgrep of ours.
fill_claude_code() {
  unpack_locked claude-code "$1/npm"
  unpack_locked codex "$1/codex"
  unpack_debian musl "$1/musl"
  unpack_debian bash-static "$1/bash"
  put "$2/claude" "$1/npm/claude"
  put "$2/lib/ld-musl.so.1" "$(find "$1/musl" -name libc.so -type f -print -quit)"
  ln -s ld-musl.so.1 "$2/lib/libc.musl-$(uname -m).so.1"
  put "$2/bin/bash" "$(find "$1/bash" -path '*/bin/bash-static' -type f -print -quit)"
  put "$2/bin/rg" "$(find "$1/codex" -path '*/codex-path/rg' -print -quit)"
}

# The vendor's file stays as it is, as above. Its configuration is a folder that it cannot write to: it would install from npm into it.
fill_opencode() {
  unpack_locked opencode "$1/npm"
  unpack_locked codex "$1/codex"
  unpack_debian libc6 "$1/libc"
  put "$2/opencode" "$1/npm/bin/opencode"
  put "$2/bin/rg" "$(find "$1/codex" -path '*/codex-path/rg' -print -quit)"
  put "$2/lib/ld-linux.so" "$(find "$1/libc" -name 'ld-linux-*.so.*' -type f -print -quit)"
  find "$1/libc" -path "*-linux-gnu/*" -regex '.*/lib\(c\|m\|dl\|pthread\)\.so\.[0-9]' -exec cp -L -t "$2/lib" {} +
  install -D -m 0644 /dev/null "$2/config/opencode/.gitignore"
}

require_pip() {
  "${PYTHON:-python3}" -m pip --version >/dev/null 2>&1 || die "pip is missing: install it, or set PYTHON to a Python that has it"
}

# An interpreter with its loader and libraries, so that any image can run it, and the locked packages.
fill_mini_swe_agent() {
  local minor package libraries=$1/python
  minor=$(python_minor)
  [ -n "$minor" ] || { apt-get update -qq; minor=$(python_minor); }
  for package in "python$minor-minimal" "libpython$minor-minimal" "libpython$minor-stdlib" libc6 zlib1g libffi8 libexpat1 \
    libbz2-1.0 liblzma5 libssl3 libuuid1 libgcc-s1; do
    unpack_debian "$package" "$libraries"
  done
  put "$2/bin/python3" "$libraries/usr/bin/python$minor"
  mkdir -p "$2/lib"
  find "$libraries" -path "*-linux-gnu/*" -name '*.so*' ! -path '*/gconv/*' -exec cp -L -t "$2/lib" {} +
  put "$2/lib/ld-linux.so" "$(find "$libraries" -name 'ld-linux-*.so.*' -print -quit)"
  cp -r "$libraries/usr/lib/python$minor" "$2/lib/"
  "${PYTHON:-python3}" -m pip install --quiet --disable-pip-version-check --no-cache-dir --root-user-action=ignore --no-deps \
    --require-hashes --only-binary :all: --python-version "$minor" --implementation cp --platform "manylinux_2_17_$(uname -m)" \
    --platform "manylinux2014_$(uname -m)" --target "$2/site" -r "$HERE/overlays/mini-swe-agent/requirements.lock"
  cp "$HERE/overlays/mini-swe-agent/run.py" "$2/run.py"
}

# check AGENT FOLDER VERSION: the tool and what comes with it start on this machine.
check() {
  local program
  case $1 in
    codex) program=("$2/bin/codex") ;;
    claude-code) program=("$2/lib/ld-musl.so.1" --library-path "$2/lib" "$2/claude"); "$2/bin/bash" -c 'exit 0' ;;
    opencode) program=("$2/lib/ld-linux.so" --library-path "$2/lib" "$2/opencode") ;;
    mini-swe-agent)
      program=("$2/lib/ld-linux.so" --library-path "$2/lib" "$2/bin/python3" -I -B "$2/run.py") ;;
  esac
  HOME=$2/../home CODEX_HOME=$2/../home MSWEA_GLOBAL_CONFIG_DIR=$2/../home MSWEA_SILENT_STARTUP=1 "${program[@]}" --version | grep -qF "$3" ||
    die "$1 does not say that it is $3"
  [ "$1" = mini-swe-agent ] || find "$2" -name rg -exec {} --version ';' | grep -q ripgrep || die "$1 has no ripgrep"
}

# assemble AGENT VERSION IMAGE: in a shell of its own.
assemble() {
  local work
  work=$(mktemp -d "$IMAGES/overlay.XXXXXX")
  # shellcheck disable=SC2064  # its value of now
  trap "rm -rf '$work'" EXIT
  mkdir "$work/context"
  "fill_${1//-/_}" "$work/packages" "$work/context"
  mkdir "$work/home"
  check "$1" "$work/context" "$2"
  if has_docker; then
    DOCKER_BUILDKIT=1 docker build -q -f "$HERE/overlays/Dockerfile" --build-arg "AGENT=$1" --build-arg "VERSION=$2" \
      -t "$3" "$work/context"
  else
    buildah_here bud --isolation chroot -q -f "$HERE/overlays/Dockerfile" --build-arg "AGENT=$1" \
      --build-arg "VERSION=$2" -t "$3" "$work/context"
  fi
}

# build AGENT: prints the image's reference.
build() {
  local name=overlay-$1 version image archive log=$IMAGES/overlay-$1.log status
  read -r version _ < <(locked "$1") || die "packages.lock has no $1 for $(uname -m)"
  image=securebench/$name:$version-$(digest images/overlays)
  archive=$OVERLAYS/$name-${image##*:}.tar
  if [ ! -f "$archive" ]; then
    if [ "$1" != mini-swe-agent ]; then require_npm; fi
    if [ "$1" != codex ]; then require_debian "$1"; fi
    if [ "$1" = mini-swe-agent ]; then require_pip; fi
    say "building $image"
    # Not "(...) || ...": behind that a shell goes on after a failure, whatever it sets.
    set +e
    (set -e; assemble "$1" "$version" "docker.io/$image") > "$log" 2>&1
    status=$?
    set -e
    if [ "$status" -ne 0 ]; then tail -n 30 "$log" >&2; die "building $image failed: $log"; fi
    rm -f "$IMAGES/overlays.env" "$IMAGES/overlays.yaml"  # they name what goes now
    find "$OVERLAYS" -name "$name-*.tar" -delete
    save "docker.io/$image" "docker.io/$image" "$archive"
    if ! has_docker; then buildah_here rmi -f "docker.io/$image" >/dev/null; fi
  fi
  say "$image  $(du -h --apparent-size "$archive" | cut -f1)"
  echo "$image"
}

main() {
  local codex claude mini opencode
  mkdir -p "$OVERLAYS"
  if [ "${1:-}" = archives ]; then find "$OVERLAYS" -name '*.tar' | sort; return; fi
  exec 9> "$OVERLAYS/lock"
  flock 9
  if ! has_docker; then "$ROOT/tests/cluster/packages.sh" node; fi
  codex=$(build codex)
  claude=$(build claude-code)
  mini=$(build mini-swe-agent)
  opencode=$(build opencode)
  printf 'SECUREBENCH_OVERLAY_%s=%s\n' CODEX "$codex" CODEX_VERSION "$(version_of codex)" \
    CLAUDE_CODE "$claude" CLAUDE_CODE_VERSION "$(version_of claude-code)" \
    MINI_SWE_AGENT "$mini" MINI_SWE_AGENT_VERSION "$(version_of mini-swe-agent)" \
    OPENCODE "$opencode" OPENCODE_VERSION "$(version_of opencode)" > "$IMAGES/overlays.env"
  { echo settings: && echo '  overlays:' && values codex "$codex" codex && values claudeCode "$claude" claude-code &&
    values miniSweAgent "$mini" mini-swe-agent && values opencode "$opencode" opencode
  } > "$IMAGES/overlays.yaml"
}

main "$@"
