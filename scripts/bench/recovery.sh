#!/usr/bin/env bash
# How long training stands still after a fault: breaks running jobs REPETITIONS times in each way on a minipod of 4 real
# SLURM nodes (SlurmdTimeout=300), at random moments, and times each from the fault log to the next new step.
#   node         an active node that does not lead loses power; it comes back as a spare
#   rank         SIGKILL for one rank
#   leader       SIGKILL for the process that leads
#   leader_spare the node that leads, a spare and the batch host, loses power: one job each, as it takes the script along
#   leader_slot  a node that leads and has ranks loses power; one job each
# As root: scripts/bench/recovery.sh HOLDFAST TRAIN TOOL [REPETITIONS=10] [FAULT...]
# Ends with one line RESULT {json}: p50 and p99 of the whole and of its parts (recovery.jq), seconds.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
programs=("$(realpath "$1")" "$(realpath "$2")" "$(realpath "$3")")
repetitions=${4:-10}
faults=("${@:5}")
((${#faults[@]})) || faults=(node rank leader leader_spare leader_slot)
HOLDFAST_MINIPOD_DIR=$(mktemp -d /var/tmp/hf-bench.XXXXXX)
export HOLDFAST_MINIPOD_DIR
# shellcheck source=tests/support/tap.sh
source "$source/tests/support/tap.sh"
# shellcheck source=tests/support/pod.sh
source "$source/tests/support/pod.sh"
trap '"$pod" down --purge 2>/dev/null; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP
broken=$dir/broken.jsonl # what was broken, with its run

mini up --nodes 4
install_programs "${programs[@]}"
make_tokens
: >"$broken"

begin() { # RUN ARGUMENT...: a job that trains
  run=$1
  soon 180 all_idle
  job=$(submit "$run" --set train.steps=1000000 --set checkpoint.every=100 --set supervise.max_restarts=100000 \
    --set supervise.max_node_failures=100000 --set supervise.max_without_checkpoint=100000 "${@:2}")
  soon 120 training "$run" 1
}
end() {
  mini exec scancel "$job"
  soon 90 job_gone "$job" || true
}
attempts() { events "$run" | jq -s 'map(select(.event == "first_step").attempt) | max'; }
steps_on() { local now; now=$(last_step "$run"); soon 60 step_reached "$run" $((now + $1)); }
any_moment() { sleep "0.$((RANDOM % 900 + 100))"; }
is_broken() { jq -cn --arg run "$run" --arg fault "$1" --arg node "$2" --argjson unix "$3" '{run: $run, fault: $fault, node: $node, unix: $unix}' >>"$broken"; }
# on NODE COMMAND: prints the time, then does it.
on() { mini exec --root --node "$1" --chdir / bash -c "date +%s.%6N; $2"; }
next_attempt() { soon 120 training "$run" "$1"; }
batch_host() { mini exec squeue -h -j "$job" -o %B; }
returned() { events "$run" | jq -es --arg n "$1" '[.[] | select(.node == $n)] | (map(select(.event == "node_lost")) | length) == (map(select(.event == "node_returned")) | length)'; }
power_off() { # NODE FAULT
  mini kill-node "$1"
  is_broken "$2" "$1" "$(jq -s 'last.unix' "$dir/faults.jsonl")"
}

break_node() {
  local node
  node=$(placement "$run" | grep -vx "$(leader_of "$run")" | grep -vx "$(batch_host)" | shuf -n 1)
  power_off "$node" kill-node
  next_attempt $(($1 + 1))
  mini revive-node "$node"
  soon 120 returned "$node" || echo "# $node has not come back"
}
break_rank() {
  local node when
  node=$(placement "$run" | shuf -n 1)
  # shellcheck disable=SC2016 # for the node's shell
  when=$(on "$node" 'kill -KILL $(pgrep -x holdfast-train | shuf -n 1)')
  is_broken kill-rank "$node" "$when"
  next_attempt $(($1 + 1))
}
adoptions() { events "$run" | jq -s 'map(select(.event == "attempt_adopted")) | length'; }
adopted_since() { (($(adoptions) > $1)); }
break_leader() {
  local node when before
  node=$(leader_of "$run")
  before=$(adoptions)
  when=$(on "$node" "kill -KILL $(leader_pid "$run")")
  is_broken kill-leader "$node" "$when"
  soon 60 adopted_since "$before" || show_record "$run"
  sleep 10 # the pauses of its steps are looked at for so long
}

break_leader_spare() {
  local before
  before=$(adoptions)
  power_off "$(leader_of "$run")" kill-leader-spare
  soon 60 adopted_since "$before" || show_record "$run"
  sleep 10
}
break_leader_slot() {
  power_off "$(leader_of "$run")" kill-leader-slot
  next_attempt 2
}
leads_in_a_slot() { placement "$run" | grep -qx "$(leader_of "$run")"; }
# The spare that leads is away until a node with ranks leads; it is back as a spare then.
lead_in_a_slot() {
  local spare
  spare=$(leader_of "$run")
  mini freeze-node "$spare"
  soon 30 leads_in_a_slot || show_record "$run"
  mini thaw-node "$spare"
  soon 60 returned "$spare" || show_record "$run"
}

for fault in "${faults[@]}"; do
  if [[ $fault == leader_* ]]; then
    for ((k = 1; k <= repetitions; ++k)); do
      begin "${fault}_$k" --spares 1
      [[ $fault == leader_spare ]] || lead_in_a_slot
      steps_on 30
      any_moment
      node=$(leader_of "$run")
      "break_$fault"
      echo "$fault $k of $repetitions: $node"
      end
      mini revive-node "$node"
    done
  else
    begin "$fault"
    for ((k = 1; k <= repetitions; ++k)); do
      steps_on 30
      any_moment
      "break_$fault" "$(attempts)"
      echo "$fault $k of $repetitions: $(last_step "$run") steps so far"
    done
    end
  fi
done

told() { # FILE-OF-A-RUN...: its lines, with the run's name
  local name
  for name in $(jq -r .run "$broken" | sort -u); do
    if [[ $1 == events ]]; then events "$name"; else cat "$home/$name/metrics.jsonl"; fi | jq -c --arg run "$name" '. + {run: $run}'
  done
}
jq -rn --slurpfile faults "$broken" --slurpfile events <(told events) --slurpfile metrics <(told metrics) -f "$source/scripts/bench/recovery.jq"
