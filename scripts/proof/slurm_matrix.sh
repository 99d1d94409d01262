#!/usr/bin/env bash
# SLURM's releases x ways to set it up: in each cell a minipod of its own, and the fault tests' quickest cases on it. The bits
# of all runs of all cells must be the same, and every case must end as its test says.
#   scripts/proof/slurm_matrix.sh BUILD ROOTS [--full] [--cases "TEST CASE..."] [--logs DIR] [RELEASE/PROFILE...]
# BUILD: a build folder. ROOTS: a folder with systems that scripts/minipod_root.sh makes; those that are missing are made there,
# but for that of this machine's own SLURM. --full: in 22.05/plain, 22.05/cgroup and 26.05/plain also `holdfast drill full`, 48 faults,
# 25 minutes each. --cases: instead of the ten, such as "losses node_killed". RELEASE/PROFILE: only these cells, such as
# 24.11/private. As root; about five minutes a cell on two cores, but those with a Prolog. A cell that fails is repeated once.
# Prints a table, and a last line RESULT with it as JSON.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=scripts/common.sh
source "$source/scripts/common.sh"
usage="usage: scripts/proof/slurm_matrix.sh BUILD ROOTS [--full] [--cases \"TEST CASE...\"] [--logs DIR] [RELEASE/PROFILE...]"
[[ $# -ge 2 && -f $1/CMakeCache.txt ]] || die "$usage"
build=$(realpath "$1") roots=$(realpath -m "$2")
shift 2
logs=$roots/logs full=no cells=()
# The ten quickest: a node, a rank, a leader, the batch host or the controller is lost; ends by order and by errors.
cases=("losses node_killed rank_killed leader_killed batch_host_killed slurmctld_down"
  "ends drained script_lost crash_loop cannot_start user_error")
while (($#)); do
  case $1 in
    --full) full=yes ;;
    --cases) cases=("${2?$usage}"); shift ;;
    --logs) logs=$(realpath -m "${2?$usage}"); shift ;;
    */*) cells+=("$1") ;;
    *) die "$usage" ;;
  esac
  shift
done
((EUID == 0)) || die "minipods need root. Become root first?"
mkdir -p "$roots" "$logs"

declare -A system=([22.05]=bookworm [24.11]=trixie [26.05]=sid)
profiles=(plain cgroup reserved private prolog limited accounting)
if ((${#cells[@]} == 0)); then
  for release in 22.05 24.11 26.05; do
    for profile in "${profiles[@]}"; do
      [[ $release/$profile == 22.05/limited ]] || cells+=("$release/$profile") # rl_enable is of 23.02
    done
  done
fi
for cell in "${cells[@]}"; do
  [[ -n ${system[${cell%/*}]-} && " ${profiles[*]} " == *" ${cell#*/} "* ]] || die "there is no cell $cell"
done

programs=("$build"/{launcher/holdfast,src/train/holdfast-train,src/tools/cli/holdfast-tool})
own=$(PATH=$PATH:/usr/sbin slurmctld -V 2>/dev/null | sed -E 's/.* ([0-9]+\.[0-9]+).*/\1/') || true
# versions ROOT: of the packages that matter; "": of the machine.
versions() {
  # shellcheck disable=SC2016 # for dpkg
  local list=(dpkg-query -W -f '${Package} ${Version}\n' slurmctld openmpi-bin slurmdbd mariadb-server)
  if [[ -n $1 ]]; then chroot "$1" "${list[@]}" 2>/dev/null; else "${list[@]}" 2>/dev/null; fi | awk 'NF == 2' | paste -sd' ' || true
}

# run_cell NAME: its tests, their output in LOGS; sets digest, passed, failed and said.
run_cell() {
  local release=${1%/*} profile=${1#*/} log=$logs/${1/\//-}.log words tests test part status=0
  words="--profile $profile" root=''
  if [[ $release != "$own" ]]; then
    root=$roots/${system[$release]}
    "$source/scripts/minipod_root.sh" "${system[$release]}" "$root" >/dev/null
    words+=" --root $root"
  fi
  tests=("${cases[@]}")
  [[ $profile != accounting ]] || tests+=(preempted)
  : >"$log"
  for test in "${tests[@]}"; do
    # shellcheck disable=SC2206 # words
    part=($test)
    # shellcheck disable=SC2086 # words
    HOLDFAST_TEST_FAST=1 HOLDFAST_TEST_POD=$words HOLDFAST_TEST_BUNDLE=${root:+$bundle} nice -n 5 timeout 3600 \
      "$source/tests/fault/${part[0]}_test.sh" "${programs[@]}" "${part[@]:1}" >>"$log" 2>&1 || status=1
  done
  if [[ $full == yes && " 22.05/plain 22.05/cgroup 26.05/plain " == *" $1 "* ]]; then drill_full "$words" >>"$log" 2>&1 || status=1; fi
  passed=$(grep -c '^ok ' "$log" || true) failed=$(grep -c '^not ok ' "$log" || true)
  digest=$(sed -n 's/^# state digest //p' "$log" | sort -u | paste -sd,)
  said=$(grep -m 1 -E '^(not ok|Bail out)' "$log" || true)
  return "$status"
}

# drill_full WORDS: the drill file `full` on a minipod of its own.
drill_full() (
  export HOLDFAST_MINIPOD_DIR=$logs/drill-pod HOLDFAST_TEST_FAST=1 HOLDFAST_TEST_BUNDLE=${root:+$bundle}
  # shellcheck source=tests/support/pod.sh
  source "$source/tests/support/pod.sh"
  trap '"$pod" down --purge' EXIT
  # shellcheck disable=SC2086 # words
  mini up --nodes 4 --slurmd-timeout 30 $1
  install_programs "${programs[@]}"
  make_tokens
  "${programs[0]}" drill full "$source/tests/fault/job.toml" --minipod "$dir" --report "$logs/drill-${1//[^a-z0-9]/-}" \
    --set data.tokens=/shared/home/tokens.bin --set "model.file=$test_model" --set train.sequence=16 # cases set train.steps
)

bundle=$logs/holdfast.tar.gz
for cell in "${cells[@]}"; do
  [[ ${cell%/*} == "$own" || -e $bundle ]] || { step "bundle"; "$source/scripts/bundle.sh" "$build" "$bundle"; }
done
if [[ $(stat -f -c %T /sys/fs/cgroup) == cgroup2fs ]]; then groups=v2; else groups=v1; fi

rows=() first='' verdict=equal
for cell in "${cells[@]}"; do
  step "$cell"
  begin=$SECONDS again=0
  run_cell "$cell" || { again=1; cp "$logs/${cell/\//-}.log" "$logs/${cell/\//-}.first.log"; say "again: $said"; run_cell "$cell" || true; }
  first=${first:-$digest}
  if ((failed > 0 || passed == 0)) || [[ -n $said ]]; then
    outcome=failed
  elif [[ $digest != "$first" ]]; then
    outcome="other bits"
  else
    outcome=equal
  fi
  [[ $outcome == equal ]] || verdict=failed
  rows+=("$(jq -cn --arg cell "$cell" --arg versions "$(versions "$root")" --arg groups "$([[ $cell != */cgroup ]] || echo "$groups")" \
    --arg digest "$digest" --arg outcome "$outcome" --arg said "$said" --argjson passed "$passed" --argjson failed "$failed" \
    --argjson again "$again" --argjson seconds $((SECONDS - begin)) '$ARGS.named')")
  say "$outcome: $passed checks passed, $failed failed, digest $digest, $((SECONDS - begin)) s"
done

printf '\n| Cell | Packages | Control groups | Checks | Digest | Outcome | Seconds |\n|---|---|---|---|---|---|---|\n'
printf '%s\n' "${rows[@]}" | jq -r '"| \(.cell) | \(.versions) | \(.groups) | \(.passed) of \(.passed + .failed)\(if .again == 1 then ", second try" else "" end) | \(.digest) | \(.outcome)\(if .said == "" then "" else ": " + .said end) | \(.seconds) |"'
printf 'RESULT %s\n' "$(printf '%s\n' "${rows[@]}" | jq -cs --arg verdict "$verdict" '{proof: "slurm_matrix", verdict: $verdict, cells: .}')"
[[ $verdict == equal ]]
