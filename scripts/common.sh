# Sourced by the scripts of this folder: how they talk, and how they become root.
# shellcheck shell=bash

# Colour only for people, and only for those who want it.
# shellcheck disable=SC2034 # used by the scripts that source this
if [[ -t 1 && -z ${NO_COLOR-} && ${TERM-dumb} != dumb ]]; then
  bold=$'\e[1m' dim=$'\e[2m' plain=$'\e[0m'
else
  bold='' dim='' plain=''
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

# quietly LOG COMMAND...: its output goes to LOG, a person sees the seconds pass; when it fails, the end of LOG is shown.
quietly() {
  local log=$1 status=0 ticker=''
  shift
  if [[ -t 1 ]]; then
    (
      begin=$SECONDS
      while sleep 1 && kill -0 $$ 2>/dev/null; do printf '\r         %d s' $((SECONDS - begin)); done
    ) &
    ticker=$!
  fi
  "$@" >"$log" 2>&1 </dev/null || status=$?
  if [[ -n $ticker ]]; then
    kill "$ticker" 2>/dev/null || true
    wait "$ticker" 2>/dev/null || true
    printf '\r%20s\r' ''
  fi
  ((status == 0)) && return
  printf -- '--- the end of %s\n' "$log" >&2
  tail -n 30 "$log" >&2
  die "'$*' failed with exit code $status (its output is in $log)"
}
