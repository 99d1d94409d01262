#!/usr/bin/env bash
# Does another user on every node disturb a run that loses nodes? A minipod of four nodes, where a process of another user on each
# plays attacks at random (scripts/proof/intruder.py) beside a job: connections to all ports, silent, slow and with garbage; files,
# folders, FIFOs and links of names that the run may use next; all calls on the owner's files, processes and memory; orders and
# claims by text. As root:
#   scripts/proof/intruder.sh BUILD [MINUTES=60] [SEED=1] [LOSS_S=300]
# HOLDFAST_PROOF_DATA_PLANE=1: they connect to the ports of MPI, too, which are not defended (docs/security.md).
# The job trains slowly while they play, and then to its end. Every LOSS_S seconds a node with ranks is killed, and revived once
# another has taken its place. Ends with one line RESULT {json}; exit code 0 only if
#   - it ends in the digest of the same job without all this, and each attempt but the last ended by the loss of the node that was
#     killed then, and by nothing else; there was one at least;
#   - nobody gained anything: no call on what is the owner's succeeded; the kernel saw the other user open, change or remove nothing
#     of the owner's, on no node and not in the run directory (scripts/proof/watch_files.py), and at the begin it did see what was
#     done to files that were open to all; nobody else may read or write what the run has on nodes, and nothing in the run directory
#     belongs to somebody else (looked at every 10 s);
#   - its logs grew by no more than 100 KiB a minute;
#   - nothing of the run stays on the nodes.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=scripts/common.sh
source "$source/scripts/common.sh"

(($# >= 1)) || { sed -n '2,19s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2; }
build=$(realpath "$1") minutes=${2:-60} seed=${3:-1} loss_s=${4:-300}
step_s=2 # of the run beside them, at least
export HOLDFAST_TEST_FAST=1 HOLDFAST_TEST_STEPS=$((60 * minutes / step_s + 50))
memory=$(mktemp -d /var/tmp/hf-intruder.XXXXXX) # a file system of its own: all of it is watched, and nothing else
mount -t tmpfs -o mode=755 minipod "$memory"
export HOLDFAST_MINIPOD_DIR=$memory/pod
mkdir "$HOLDFAST_MINIPOD_DIR"
# shellcheck source=tests/support/tap.sh
source "$source/tests/support/tap.sh"
# shellcheck source=tests/support/pod.sh
source "$source/tests/support/pod.sh"
# shellcheck disable=SC2154 # pod, dir and home are of pod.sh
trap '"$pod" down --purge 2>/dev/null; umount -l "$memory"; rmdir "$memory"' EXIT
trap 'exit 130' INT TERM HUP

mini up --nodes 4
install_programs "$build/launcher/holdfast" "$build/src/train/holdfast-train" "$build/src/tools/cli/holdfast-tool"
install -m 0755 "$source/scripts/proof/"{intruder,watch_files}.py "$dir/shared/opt/holdfast/bin/"
make_tokens
owner=61000
digest() { result "$1" .state_digest; }

step "the undisturbed run"
submit plain >/dev/null
soon 600 over plain || die "the undisturbed run does not end"

step "the watch on files"
mkfifo "$dir/end"
"$pod" exec --root --chdir / python3 -B /shared/opt/holdfast/bin/watch_files.py $owner 61001 <>"$dir/end" >"$dir/watched" 2>&1 &
watch=$!
soon 20 grep -q ready "$dir/watched" || die "nothing is watched: $(<"$dir/watched")"
mini exec --node dgx001 --chdir /dev/shm sh -c 'umask 0; mkdir open; echo all >open/read; echo all >open/removed'
mini exec --intruder --node dgx001 --chdir /dev/shm python3 -c 'import os, time; open("open/read").read(); os.unlink("open/removed"); time.sleep(2)'
mini exec --node dgx001 --chdir /dev/shm rm -r open
seen=$(jq -rs 'map(select(.what) | "\(.what) \(.path)") | join(", ")' "$dir/watched")
[[ $seen == "open /dev/shm/open/read, remove /dev/shm/open/removed" ]] || die "the watch sees another thing than what was done: $seen"

step "the run beside them"
soon 120 all_idle
job=$(submit_held beside --set supervise.max_node_failures=1000)
soon 180 step_reached beside 5 || die "the run does not train"
batch_host=$(mini exec scontrol show job "$job" | sed -n 's/.*BatchHost=//p')
log_bytes() { find "$home/beside/logs" "$home/beside/events" -type f -printf '%s\n' | awk '{n += $1} END {print n + 0}'; }
before=$(log_bytes)

step "$minutes minutes of attacks, seed $seed"
end=$((SECONDS + 60 * minutes))
read -r first last < <(jq -r '"\(.nodes[0].port) \(.nodes[0].port + .nodes[0].ports - 1)"' "$home/beside/nodes.json")
[[ -z ${HOLDFAST_PROOF_DATA_PLANE-} ]] || first=1024 last=65535
intruders=()
attack() { # NODE
  local name=$dir/intruder-${#intruders[@]}
  "$pod" exec --intruder --node "$1" --chdir / python3 -B /shared/opt/holdfast/bin/intruder.py $((end - SECONDS)) \
    $((seed * 1000 + ${#intruders[@]})) $owner /shared/home/beside "$first" "$last" >"$name.json" 2>"$name.err" </dev/null &
  intruders+=($!)
}
for node in dgx001 dgx002 dgx003 dgx004; do attack $node; done
lost=()
came_back() { (($(events beside | jq -s --arg node "$1" 'map(select(.event == "node_returned" and .node == $node)) | length') == $2)); }
# Not the batch host: only its job script gives a node agents again.
lose_a_node() {
  local node
  node=$(placement beside | grep -vxF "$batch_host" | shuf -n 1)
  mini kill-node "$node"
  lost+=("$node")
  soon 180 training beside $((${#lost[@]} + 1)) || die "the run does not train again"
  mini revive-node "$node"
  soon 120 came_back "$node" "$(printf '%s\n' "${lost[@]}" | grep -cxF "$node")" || die "$node is not a spare again"
  attack "$node"
}
# What of the owner's others may read or write, on a node or in the run directory, and what there is somebody else's.
open_to_others() {
  local node
  for node in dgx001 dgx002 dgx003 dgx004; do
    # shellcheck disable=SC2016 # for the node's shell
    mini exec --root --node "$node" --chdir / bash -c 'find /dev/shm /tmp /var/tmp -user "$1" ! -type l -perm /o+rwx -path "*holdfast*" 2>/dev/null' _ $owner || true
  done
  find "$home/beside" \( ! -user $owner -o -perm /o+w \) ! -type l ! -name 'hold*' 2>/dev/null || true # those are this script's
}
: >"$dir/open"
next_loss=$((SECONDS + loss_s))
while ((SECONDS < end)); do
  hold beside $step_s # it lasts for 900 s at most
  open_to_others >>"$dir/open"
  if ((SECONDS >= next_loss && end - SECONDS > 60)); then
    lose_a_node
    next_loss=$((next_loss + loss_s))
  fi
  sleep 10
done
wait "${intruders[@]}" || true # of those of lost nodes
after=$(log_bytes)

step "to its end"
let_go beside
soon 600 over beside || { show_record beside; die "the run beside them does not end"; }
soon 60 all_idle
left=$(for node in dgx001 dgx002 dgx003 dgx004; do mini exec --root --node "$node" --chdir / find /dev/shm /tmp -user $owner -path '*holdfast*' 2>/dev/null || true; done | wc -l)
echo end >"$dir/end"
wait $watch || die "the watch has failed: $(tail -n 5 "$dir/watched")"

summary=$(tail -qn 1 "$dir"/intruder-*.json | jq -cs --arg plain "$(digest plain)" --arg beside "$(digest beside)" \
  --argjson attempts "$(result beside '.attempts | map([.cause, .node]) | tojson')" --argjson lost "$(jq -cn '$ARGS.positional' --args "${lost[@]}")" \
  --argjson minutes "$minutes" --argjson seed "$seed" --argjson log_bytes $((after - before)) --argjson left "$left" \
  --argjson open "$(sort -u "$dir/open" | jq -R . | jq -s .)" --argjson watched "$(jq -cs . "$dir/watched")" '{proof: "intruder", minutes: $minutes,
    seed: $seed, nodes: (map(select(.ended).node) | unique | length),
    played: (map(.played | to_entries[]) | group_by(.key) | map({(.[0].key): (map(.value) | add)}) | add),
    gained: (map(.gained[]) | unique), seen: ($watched | map(select(.what)) | .[2:] | unique), watched: ($watched | last), open: $open,
    lost: $lost, attempts: $attempts, digests: [$plain, $beside], left: $left, log_bytes_per_minute: ($log_bytes / $minutes | floor)}')
cat "$dir"/intruder-*.err >&2
printf 'RESULT %s\n' "$summary"
jq -e '.nodes == 4 and .gained == [] and .seen == [] and .open == [] and .lost != [] and .attempts == (.lost | map(["node lost", .])) + [["finished", ""]]
  and .digests[0] == .digests[1] and .left == 0 and .log_bytes_per_minute <= 102400' <<<"$summary" >/dev/null || { show_record beside >&2; exit 1; }
