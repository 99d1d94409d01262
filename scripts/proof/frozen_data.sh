#!/usr/bin/env bash
# Does a run give healthy nodes away when its ranks cannot be killed? Six nodes of a minipod, four of them with eight ranks each. All
# ranks but rank 0 write to a file system that is not the run directory's, half of them in a thread while their first thread does
# something else. It is frozen (fsfreeze), so that they wait in the kernel, and rank 0 is killed. SECONDS later the file system thaws.
# Then the run must go on, on the same nodes, and come to its end. As root:
#   scripts/proof/frozen_data.sh BUILD [SECONDS=100]
# Ends with one line RESULT {json}; exit code 0 only if no node was lost and the run is done after two attempts.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=scripts/common.sh
source "$source/scripts/common.sh"
(($# >= 1)) || die "which build? scripts/proof/frozen_data.sh BUILD [SECONDS]"
build=$(realpath "$1") frozen_s=${2:-100}
HOLDFAST_MINIPOD_DIR=$(mktemp -d /var/tmp/hf-frozen.XXXXXX)
export HOLDFAST_MINIPOD_DIR
# shellcheck source=tests/support/tap.sh
source "$source/tests/support/tap.sh"
# shellcheck source=tests/support/pod.sh
source "$source/tests/support/pod.sh"
# shellcheck disable=SC2154 # pod, dir and home are of pod.sh
trap '"$pod" down --purge 2>/dev/null; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP

run=frozen
mini up --nodes 6 --data ext4
install_programs "$build/launcher/holdfast" "$build/src/train/holdfast-train" "$build/src/tools/cli/holdfast-tool"
cat >"$home/rank.py" <<'PY'
import os, threading, time
rank = int(os.environ["RANK"])

def write():
    while not os.path.exists("/shared/home/enough"):
        with open(f"/data/ext4/rank{rank}", "w") as file:
            file.write("x" * 8192)
        time.sleep(0.05)

if rank == 0:
    with open("/shared/home/rank_0", "w") as file:
        file.write(str(os.getpid()))
    while not os.path.exists("/shared/home/enough"):
        time.sleep(0.05)
elif rank % 2:
    write()
else:
    thread = threading.Thread(target=write)
    thread.start()
    thread.join()
PY
job=$(mini exec holdfast submit --command 'python3 rank.py' -N 4 --spares 2 --set cluster.ranks_per_node=8 --set "run.dir=/shared/home/$run" --parsable)
has_event() { events "$run" | jq -es --arg e "$1" --argjson n "$2" 'map(select(.event == $e)) | length >= $n' >/dev/null; }
soon 120 has_event placement_verified 1 || { show_record "$run"; die "the ranks are not up"; }
sleep 2
mini freeze-data
sleep 1
first=$(placement "$run" | head -n 1)
mini exec --root --node "$first" --chdir / kill -KILL "$(<"$home/rank_0")"
killed=$SECONDS
while ((SECONDS < killed + frozen_s)); do
  sleep 5
  [[ -n $(mini exec squeue -h -j "$job" -t RUNNING -o %T) ]] || break
done
in_kernel=$(mini exec --root ps -e -o stat= | grep -c ^D || true)
status=$(mini exec holdfast status "/shared/home/$run" | sed -n '/old ranks/p' | head -n 1)
mini thaw-data
soon 120 has_event placement_verified 2 || { show_record "$run"; echo "# the ranks are not up again"; }
touch "$home/enough"
soon 120 over "$run" || echo "# the run is not over"
result=$(jq -n --slurpfile events <(events "$run") --arg status "$status" --argjson frozen "$frozen_s" --argjson kernel "$in_kernel" --arg outcome "$(result "$run" .status || true)" '
  {proof: "frozen_data", frozen_s: $frozen, processes_in_kernel: $kernel, status: $status, outcome: $outcome,
   lost: [$events[] | select(.event == "node_lost") | {node, evidence}], attempts: ([$events[] | select(.event == "attempt_planned")] | length),
   waits: [$events[] | select(.event == "old_ranks_remain").evidence]}')
printf 'RESULT %s\n' "$(jq -c . <<<"$result")"
jq -e '.lost == [] and .attempts == 2 and .outcome == "done"' <<<"$result" >/dev/null
