# Sourced by the scripts of this folder: how they talk, and how they become root.
# shellcheck shell=bash

# Colour only for people, and only for those who want it.
# shellcheck disable=SC2034 # used by the scripts that source this
if [[ -t 1 && -z ${NO_COLOR-} && ${TERM-dumb} != dumb ]]; then
  bold=$'\e[1m' plain=$'\e[0m'
else
  bold='' plain=''
fi

# A heading, with the seconds since the script began.
step() { printf '%s[%4d s] %s%s\n' "$bold" "$SECONDS" "$*" "$plain"; }
say() { printf '         %s\n' "$*"; }
die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

as_root() {
  if ((EUID == 0)); then
    "$@"
  else
    command -v sudo >/dev/null || die "this needs root, and there is no sudo. Become root first?"
    sudo -- "$@"
  fi
}

# How far the command that writes LOG has come, until this is ended: the seconds, and in percent where LOG is ninja's. A
# person sees both move; elsewhere there is a line for every 10 %.
watch_log() {
  local begin=$SECONDS count='' percent='' shown=0
  while sleep 1 && kill -0 $$ 2>/dev/null; do
    count=$(tail -c 2000 "$1" | { grep -oE '^\[[0-9]+/[0-9]+\]' || true; } | tail -n 1 | tr -d '[]')
    [[ -z $count ]] || percent=$((100 * ${count%/*} / ${count#*/}))
    if [[ -t 1 ]]; then
      printf '\r         %d s%s ' $((SECONDS - begin)) "${percent:+, $percent %}"
    elif ((${percent:-0} / 10 > shown)); then
      shown=$((percent / 10))
      say "$((10 * shown)) % after $((SECONDS - begin)) s"
    fi
  done
}

# quietly LOG COMMAND...: its output goes to LOG, which is watched; when it fails, the end of LOG is shown.
quietly() {
  local log=$1 status=0 watcher
  shift
  : >"$log"
  watch_log "$log" &
  watcher=$!
  "$@" >"$log" 2>&1 </dev/null || status=$?
  kill "$watcher" 2>/dev/null || true
  wait "$watcher" 2>/dev/null || true
  [[ ! -t 1 ]] || printf '\r%30s\r' ''
  ((status == 0)) && return
  printf -- '--- the end of %s\n' "$log" >&2
  tail -n 30 "$log" >&2
  die "'$*' failed with exit code $status (its output is in $log)"
}
