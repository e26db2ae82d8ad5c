# shellcheck shell=bash
# Pushes archives of images with $CRANE. Sourced by push.sh and by the bundle's restore.sh, which has a copy beside it.

# require_registry REGISTRY: a host and a path, as in front of an image's name.
require_registry() {
  case $1 in
    '') die "REGISTRY is empty: give host and path, such as registry.example.org/team" ;;
    *://* | */ | *[[:space:]]* | *@*) die "REGISTRY is $1: write host and path alone, such as registry.example.org/team" ;;
  esac
}

# crane REFERENCE WORD...: runs it; when it fails, says why in its last line, and what to do about the reference.
crane() {
  local reference=$1 said; shift
  said=$(mktemp)
  if ! "$CRANE" "$@" 2> "$said"; then
    tail -n 1 "$said" >&2
    rm "$said"
    die "$reference was not pushed; if the registry asks for credentials: docker login ${reference%%/*}"
  fi
  rm "$said"
}

# push_archive ARCHIVE REFERENCE: prints the reference by digest.
push_archive() { crane "$2" push "$1" "$2"; }

# chart_values OPERATOR POD: the chart's values that name both.
chart_values() { printf 'image:\n  operator: %s\n  pod: %s\n' "$1" "$2"; }
