# Sourced by the shell tests: checks, with one line of TAP each.
# shellcheck shell=bash
count=0
failed=0

# check NAME COMMAND...: one line of TAP, with the output of COMMAND if it failed.
check() {
  local name=$1 said
  shift
  count=$((count + 1))
  if said=$("$@" 2>&1); then
    echo "ok $count - $name"
  else
    echo "not ok $count - $name"
    echo "# ${said//$'\n'/$'\n# '}"
    failed=$((failed + 1))
  fi
}
equal() { [[ $1 == "$2" ]] || { printf 'got:  %s\nwant: %s\n' "$1" "$2"; false; }; }
holds() { [[ $1 == *"$2"* ]] || { printf 'got:  %s\nwant in it: %s\n' "$1" "$2"; false; }; }
at_least() { (($1 >= $2)) || { printf 'got:  %s\nwant: at least %s\n' "$1" "$2"; false; }; }
# soon SECONDS COMMAND...: until it succeeds.
soon() {
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < end)) || { "$@"; return; }
    sleep 0.3 # a look costs some hundredths of a second of a processor, and several topics look at once
  done
}
# The last line of a test: its exit code.
conclude() {
  echo "1..$count"
  ((failed == 0)) || echo "# $failed of $count failed"
  exit $((failed > 0))
}
# need_cluster ARGUMENTS...: SLURM's programs and root (this script again under sudo, with its arguments), or a skip.
need_cluster() {
  local tool
  for tool in slurmctld slurmd srun munged jq; do
    PATH=$PATH:/usr/sbin command -v $tool >/dev/null || {
      echo "1..0 # SKIP no $tool here"
      exit 77
    }
  done
  ((EUID == 0)) || { sudo -n true 2>/dev/null || { echo "1..0 # SKIP needs root"; exit 77; }; exec sudo -n -- "$0" "$@"; }
}
