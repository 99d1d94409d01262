#!/usr/bin/env bash
# The first command of the README: from a fresh Debian 12 to a training job that loses a node and ends in the same bits.
#
# Installs packages, builds, brings up a SLURM cluster of four nodes on this machine (scripts/minipod), prepares text,
# trains a small model on two nodes with two spares, kills one of the two in the middle, lets the job finish, trains the
# same job undisturbed, and compares the final states. Needs root or sudo, two cores, about 4 GB of memory. Leaves the
# cluster up for you; `scripts/minipod down` ends it. Exit code 0 only if both runs ended in the same bits.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/common.sh
source scripts/common.sh

# The text: the King James Version of the Bible, 4.3 MB of English prose in the public domain, printed by the program
# of this Debian package.
text_package=bible-kjv
text_command=(bible ge1:1-re22:21)

pod() { scripts/minipod exec "$@"; }
pod_dir=$(scripts/minipod dir)
home=/shared/home/quickstart # as the cluster sees it; $pod_dir/shared/home/quickstart from here
job_file=/shared/opt/holdfast/share/holdfast/configs/jobs/quickstart.toml
logs=build/quickstart
run='' # run directory of the job at hand, as the cluster sees it

trap 'stop_reading; printf "\nThe cluster stays up if it was. Stop it with: scripts/minipod down\n" >&2; exit 130' INT

# ---------------------------------------------------------- looking at a run --

# Run directories belong to the cluster's user and are closed to others.
# shellcheck disable=SC2016 # for the shell that as_root starts
in_run() { as_root bash -c 'shopt -s nullglob; cd "$1" 2>/dev/null || exit 0; '"$1; exit 0" _ "$pod_dir$run"; }
# shellcheck disable=SC2016
events() { in_run 'for log in events/*.jsonl; do cat "$log"; done' | jq -cR 'fromjson? // empty'; }
result() { in_run 'cat result.json' | jq -r "$1"; }

# A job's log is read until its run is over, which may be never.
reader=''
stop_reading() { [[ -z $reader ]] || kill "$reader" 2>/dev/null || true; }

# fail WHY: what the run wrote last, then the end. The cluster stays for a look.
fail() {
  stop_reading
  {
    printf '\nThe run %s did not go as it should: %s\n' "$run" "$*"
    printf -- '--- its last events\n'
    events | tail -n 12
    # shellcheck disable=SC2016 # for the shell of in_run
    in_run 'for log in $(find . -maxdepth 3 \( -name "*.log" -o -name "*.out" -o -path "./logs/*" \) -type f -size +0 -printf "%T@ %p\n" | sort -n | tail -n 4 | cut -d" " -f2-); do
      echo "--- the end of $log"; tail -n 12 "$log"; done'
    printf -- '--- the cluster is still up: scripts/minipod exec squeue; scripts/minipod shell; scripts/minipod down\n'
  } >&2
  exit 1
}

# follow JOB KILL_STEP: show the job's log until the run is over; at KILL_STEP (if not 0) kill an active node. Sets killed_node.
follow() {
  local job=$1 kill_step=$2 deadline=$((SECONDS + 900)) line
  killed_node='' killed_at=0
  pod holdfast logs --follow --job "$run" 2>/dev/null | sed -u -n 's/^\([^ ]*\)T\([0-9:.]*\)Z [a-z]* run: /         \2  /p' &
  reader=$!
  until [[ $(result '.status' 2>/dev/null) ]]; do
    # Only once there is something to come back to: a restart from nothing would prove nothing.
    if ((kill_step > 0 && $(last_step) >= kill_step)) && [[ -z $killed_node && $(events) == *'"checkpoint_durable"'* ]]; then
      kill_an_active_node
    fi
    ((SECONDS < deadline)) || fail "it is not over after 900 s"
    line=$(pod squeue -h -j "$job" -o '%T %r' 2>/dev/null || true)
    if [[ ! $line =~ ^(PENDING|CONFIGURING|RUNNING) ]]; then # gone, or (with a dead node in it) completing
      sleep 2
      [[ $(result '.status' 2>/dev/null) ]] || fail "SLURM job $job has ended without a result"
    fi
    sleep 0.5
  done
  wait "$reader" || true
  reader=''
}
last_step() { in_run 'tail -n 1 metrics.jsonl 2>/dev/null' | jq -R 'fromjson? // {} | .step // 0' | grep . || echo 0; }

kill_an_active_node() {
  killed_node=$(events | jq -rs 'map(select(.event == "attempt_planned")) | last.placement | last')
  step "kill: scripts/minipod kill-node $killed_node (an active node, at step $(last_step))"
  scripts/minipod kill-node "$killed_node"
  let_go
  killed_at=$(scripts/minipod faults | jq -s --arg node "$killed_node" 'map(select(.fault == "kill-node" and .node == $node)) | last.unix')
}

# submit NAME ARGUMENT...: sets run and job
submit() {
  run=$home/$stamp/$1
  job=$(pod holdfast submit "$job_file" --parsable --set "run.name=quickstart-$1" --set "run.dir=$run" \
    --set "data.tokens=$home/tokens.bin" "${@:2}") || die "holdfast submit failed (see above)"
  say "SLURM job $job; run directory $run"
}

# A run with drill.allowed lasts until it is let go, on the fastest machine too: until then no step takes less than 50 ms,
# and the last one is not taken (src/train/loop/step_hold.hpp). No bit depends on it.
# shellcheck disable=SC2016 # for the shell that runs it
hold() { pod bash -c 'echo "0.05 600" >"$1/hold"' _ "$run"; }
let_go() { pod rm -f "$run/hold"; }

expect_done() {
  [[ $(result .status) == "done" ]] || fail "it ended with status '$(result .status)': $(result .why)"
}

wait_for_idle_nodes() {
  local deadline=$((SECONDS + 90)) idle
  until idle=$(pod sinfo -h -N -o '%N %t' | awk '$2 == "idle" {++n} END {print n + 0}') && ((idle >= 4)); do
    if ((SECONDS >= deadline)); then
      pod sinfo -N -l >&2
      die "only ${idle:-0} of 4 nodes are idle after 90 s (see above). Try 'scripts/minipod down' and again?"
    fi
    sleep 1
  done
}

# ------------------------------------------------------------------ the run ----

printf '%sHoldfast quickstart%s: a SLURM cluster on this machine, a training job, and a node that dies under it\n\n' "$bold" "$plain"
mkdir -p "$logs"
as_root true # asks for the password now, if it must
stamp=$(date -u +%Y%m%dT%H%M%SZ)

step "packages"
quietly "$logs/packages.log" scripts/setup.sh "$text_package"
tail -n 1 "$logs/packages.log" | grep -q 'all packages are here' && say "all packages are here"

step "build (preset release)"
quietly "$logs/configure.log" cmake --preset release
quietly "$logs/build.log" cmake --build --preset release

step "cluster: scripts/minipod up --nodes 4"
quietly "$logs/minipod.log" scripts/minipod up --nodes 4
for node in dgx001 dgx002 dgx003 dgx004; do # one that an earlier quickstart killed
  ! as_root test -e "$pod_dir/nodes/$node/killed" || scripts/minipod revive-node "$node"
done
quietly "$logs/install.log" as_root cmake --install build/release --prefix "$pod_dir/shared/opt/holdfast"
wait_for_idle_nodes
say "4 nodes, each with its own network, processes and host name; SlurmdTimeout=300"

step "text: the King James Version (Debian package $text_package)"
pod mkdir -p "$home"
# shellcheck disable=SC2016 # for the shell that runs it
pod bash -c 'out=$1; shift; "$@" </dev/null >"$out"' _ "$home/text.txt" "${text_command[@]}"
pod holdfast data prepare --input "$home/text.txt" --output "$home/tokens.bin" --train-vocabulary 2048 |
  while read -r line; do say "${line#"$home/"}"; done

step "train: holdfast submit quickstart.toml (2 active nodes x 2 ranks, 2 spares)"
submit disturbed --set drill.allowed=true
hold # until a node has been killed
steps=$(in_run 'cat config.toml' | sed -nE 's/^steps *= *([0-9]+).*/\1/p')
follow "$job" $((${steps:-300} / 3))
expect_done
[[ -n $killed_node ]] || fail "it was over before a node could be killed"
disturbed_run=$run
disturbed=$(in_run 'cat result.json')
restored=$(jq '[.attempts[1:][].restored_from.step // 0] | max // 0' <<<"$disturbed")
detected_s=$(events | jq -s --argjson t "$killed_at" 'map(select(.event == "node_lost").unix - $t) | first // -1')
recovered_s=$(events | jq -s --argjson t "$killed_at" 'map(select(.event == "first_step" and .unix > $t).unix - $t) | first // -1')
((restored > 0)) || fail "nothing was restored: the run began again, and equal states would prove nothing"
say "$(printf '%s killed: noticed after %.1f s, training again after %.1f s from step %d, %d steps done twice' \
  "$killed_node" "$detected_s" "$recovered_s" "$restored" "$(jq '[.attempts[].lost_steps] | add' <<<"$disturbed")")"

step "again, undisturbed (after scripts/minipod revive-node $killed_node)"
scripts/minipod revive-node "$killed_node"
wait_for_idle_nodes
submit undisturbed
follow "$job" 0
expect_done

step "the states after the last step"
for name in disturbed undisturbed; do
  run=$home/$stamp/$name
  printf '         %-12s  state digest %s%s%s  step %s  loss %.6f  attempts %s\n' "$name" "$bold" "$(result .state_digest)" "$plain" \
    "$(result .final_step)" "$(result .final_loss)" "$(result '.attempts | length')"
done
same=no
[[ $(result .state_digest) =~ ^[0-9a-f]{16}$ && $(result .state_digest) == "$(jq -r .state_digest <<<"$disturbed")" ]] && same=yes
if [[ $same == yes ]]; then
  say "equal: the run you got is the run you would have had"
else
  say "DIFFERENT: this must not happen. Please report it, with $pod_dir/shared/home/quickstart/$stamp"
fi

cat <<END

The cluster is still up. To look around:
  scripts/minipod exec holdfast status $disturbed_run
  scripts/minipod exec holdfast ckpt ls $disturbed_run
  scripts/minipod exec holdfast generate $disturbed_run --prompt "In the beginning"
  scripts/minipod exec sinfo -N -l
  scripts/minipod shell                     a shell on its login host; holdfast, sbatch, squeue are there
  scripts/minipod help                      freeze a node, cut its link, kill the controller...
  scripts/minipod down                      end it (--purge: and delete its files in $pod_dir)
END
[[ $same == yes ]]
