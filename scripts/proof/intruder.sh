#!/usr/bin/env bash
# Does another user on every node disturb a run? A minipod of four nodes, where a process of another user on each plays attacks at
# random (scripts/proof/intruder.py) beside a job: connections to all ports, silent, slow and with garbage; files, folders, FIFOs and
# links of names that the run may use next; all calls on the owner's files, processes and memory; orders and claims by text. As root:
#   scripts/proof/intruder.sh BUILD [MINUTES=60] [SEED=1]
# HOLDFAST_PROOF_DATA_PLANE=1: they connect to the ports of MPI, too, which are not defended (docs/security.md).
# The job trains slowly while they play, and then to its end. Ends with one line RESULT {json}; exit code 0 only if
#   - it had one attempt and ends in the digest of the same job without them;
#   - nobody gained anything: no call on what is the owner's succeeded, nobody else may read or write it, and nothing in the run
#     directory belongs to somebody else (looked at every 10 s);
#   - its logs grew by no more than 100 KiB a minute;
#   - nothing of the run stays on the nodes.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=scripts/common.sh
source "$source/scripts/common.sh"

(($# >= 1)) || { sed -n '2,13s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2; }
build=$(realpath "$1") minutes=${2:-60} seed=${3:-1}
step_s=2 # of the run beside them, at least
export HOLDFAST_TEST_FAST=1 HOLDFAST_TEST_STEPS=$((60 * minutes / step_s + 50))
HOLDFAST_MINIPOD_DIR=${HOLDFAST_MINIPOD_DIR:-$(mktemp -d /var/tmp/hf-intruder.XXXXXX)}
export HOLDFAST_MINIPOD_DIR
# shellcheck source=tests/support/tap.sh
source "$source/tests/support/tap.sh"
# shellcheck source=tests/support/pod.sh
source "$source/tests/support/pod.sh"
# shellcheck disable=SC2154 # pod, dir and home are of pod.sh
trap '"$pod" down --purge 2>/dev/null; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP

mini up --nodes 4
install_programs "$build/launcher/holdfast" "$build/src/train/holdfast-train" "$build/src/tools/cli/holdfast-tool"
install -m 0755 "$source/scripts/proof/intruder.py" "$dir/shared/opt/holdfast/bin/"
make_tokens
nodes=(dgx001 dgx002 dgx003 dgx004)
digest() { result "$1" .state_digest; }

step "the undisturbed run"
submit plain >/dev/null
soon 300 over plain || die "the undisturbed run does not end"

step "the run beside them"
soon 120 all_idle
submit_held beside >/dev/null
soon 180 step_reached beside 5 || die "the run does not train"
log_bytes() { find "$home/beside/logs" "$home/beside/events" -type f -printf '%s\n' | awk '{n += $1} END {print n + 0}'; }
before=$(log_bytes)

step "$minutes minutes of attacks, seed $seed"
owner=61000
read -r first last < <(jq -r '"\(.nodes[0].port) \(.nodes[0].port + .nodes[0].ports - 1)"' "$home/beside/nodes.json")
[[ -z ${HOLDFAST_PROOF_DATA_PLANE-} ]] || first=1024 last=65535
for i in "${!nodes[@]}"; do
  "$pod" exec --intruder --node "${nodes[i]}" --chdir / python3 -B /shared/opt/holdfast/bin/intruder.py $((60 * minutes)) \
    $((seed * 100 + i)) $owner /shared/home/beside "$first" "$last" >"$dir/${nodes[i]}.json" 2>"$dir/${nodes[i]}.err" </dev/null &
done
# What of the owner's others may read or write, on a node or in the run directory, and what there is somebody else's.
open_to_others() {
  local node
  for node in "${nodes[@]}"; do
    # shellcheck disable=SC2016 # for the node's shell
    mini exec --root --node "$node" --chdir / bash -c 'find /dev/shm /tmp /var/tmp -user "$1" ! -type l -perm /o+rwx -path "*holdfast*" 2>/dev/null' _ $owner || true
  done
  find "$home/beside" \( ! -user $owner -o -perm /o+w \) ! -type l ! -name 'hold*' 2>/dev/null || true # those are this script's
}
: >"$dir/open"
end=$((SECONDS + 60 * minutes))
while ((SECONDS < end)); do
  hold beside $step_s # it lasts for 900 s at most
  open_to_others >>"$dir/open"
  sleep 10
done
wait
after=$(log_bytes)

step "to its end"
let_go beside
soon 600 over beside || { show_record beside; die "the run beside them does not end"; }
soon 60 all_idle
left=$(for node in "${nodes[@]}"; do mini exec --root --node "$node" --chdir / find /dev/shm /tmp -user $owner -path '*holdfast*' 2>/dev/null || true; done | wc -l)

summary=$(jq -cs --arg plain "$(digest plain)" --arg beside "$(digest beside)" --argjson attempts "$(result beside '.attempts | length')" \
  --argjson minutes "$minutes" --argjson seed "$seed" --argjson log_bytes $((after - before)) --argjson left "$left" \
  --argjson open "$(sort -u "$dir/open" | jq -R . | jq -s .)" '{proof: "intruder", minutes: $minutes, seed: $seed, nodes: length,
    played: (map(.played | to_entries[]) | group_by(.key) | map({(.[0].key): (map(.value) | add)}) | add),
    gained: (map(.gained[]) | unique), open: $open, attempts: $attempts, digests: [$plain, $beside], left: $left,
    log_bytes_per_minute: ($log_bytes / $minutes | floor)}' "$dir"/dgx*.json)
cat "$dir"/dgx*.err >&2
[[ $(result beside '.attempts | length') == 1 ]] || show_record beside >&2
printf 'RESULT %s\n' "$summary"
jq -e --argjson n ${#nodes[@]} '.nodes == $n and .gained == [] and .open == [] and .attempts == 1 and .digests[0] == .digests[1] and .left == 0
  and .log_bytes_per_minute <= 102400' <<<"$summary" >/dev/null
