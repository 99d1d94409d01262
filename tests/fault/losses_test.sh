#!/usr/bin/env bash
# shellcheck disable=SC2317,SC2119 # check and soon call most functions
# The loss of nodes, ranks and leaders.
# losses_test.sh HOLDFAST TRAIN TOOL [CASE...]; see tests/support/fault.sh.
set -uo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/support/fault.sh
source "$source/tests/support/fault.sh"

all_cases=(node_killed partner_killed adapters rank_killed rank_stuck stuck_before_takeover leader_killed agents_stopped batch_host_killed spare_returns slow_node slurmctld_down out_of_spares)

case_node_killed() {
  # Its replica has the same state; the shared level has no checkpoint.
  start_held node_killed --set checkpoint.every=0
  trains_to 10
  local node slot_after
  node=$(nth 2)
  mini kill-node "$node"
  check "training goes on" soon 120 training "$run" 2
  check "$run: without a checkpoint" equal "$(events "$run" | jq -rs 'map(select(.event == "checkpoint_durable")) | length')" 0
  ends_like_the_undisturbed
  came_back_from 2 peer
  check "the culprit is named" equal "$(result "$run" '.attempts[0].node')" "$node"
  slot_after=$(result "$run" '.attempts[1].placement[0]')
  check "the other slot kept its node" equal "$slot_after" "$(result "$run" '.attempts[0].placement[0]')"
  every_step_once
  mini revive-node "$node"
}

case_partner_killed() {
  # No replica: the partner of the node has a copy of its state.
  start_held partner_killed --set checkpoint.every=0 --set shard.strategy=full_shard
  trains_to 10
  local node
  node=$(nth 2)
  mini kill-node "$node"
  ends_like_the_undisturbed
  came_back_from 2 partner
  mini revive-node "$node"
}

case_adapters() {
  # Adapters on the weights of the undisturbed run, in 4 bits: every start reads these again, for no checkpoint has them.
  local tuning=(--set model.weights=/shared/home/undisturbed --set lora.rank=4 --set lora.dropout=0.1 --set lora.base=nf4
    --set 'lora.targets=["q_proj", "v_proj", "down_proj"]' --set checkpoint.every=0 --set train.steps=120)
  start adapters_undisturbed "${tuning[@]}"
  ends_as "done" 0
  local undisturbed undisturbed_loss node
  undisturbed=$(result adapters_undisturbed .state_digest) undisturbed_loss=$(result adapters_undisturbed .final_loss)
  start_held adapters "${tuning[@]}"
  trains_to 10
  node=$(nth 2)
  mini kill-node "$node"
  ends_like_the_undisturbed
  came_back_from 2 peer
  mini revive-node "$node"
}

case_rank_killed() {
  start_held rank_killed --set checkpoint.every=0
  trains_to 10
  local node
  node=$(nth 1)
  check "$run: a rank is killed" signal_rank KILL "$node"
  ends_like_the_undisturbed
  # A rank that is killed while it seals its newest snapshot takes that step from its replica.
  check "$run: no shared file was needed" holds "local peer" "$(result "$run" '.attempts[1].restored_from.level')"
  check "restarted in place" equal "$(result "$run" '.attempts[1].placement')" "$(result "$run" '.attempts[0].placement')"
  check "the signal is on record" equal "$(events "$run" | jq -rs 'map(select(.event == "rank_exited"))[0].status')" 137
}
spares_seen() { events "$run" | jq -es 'any(.event == "spare_health" and .spare and .fitness != "unknown")'; }

case_rank_stuck() {
  # The process lives and keeps its connections, but does nothing: the others wait for it in some collective.
  start_held rank_stuck --set supervise.step_s=5
  mid_run 10
  local second
  second=$(nth 2)
  check "$run: rank 3 is stopped" signal_rank STOP "$second" 3
  check "$run: its flight record is there" holds "$(flights "$second")" ".1.3"
  ends_like_the_undisturbed
  check "it is named" equal "$(ended .rank)" 3
  check "so is its node" equal "$(ended .node)" "$second"
  check "as hung" equal "$(ended .cause)" "rank hung"
  check "with what speaks against it" holds "$(ended .evidence)" "process of rank 3 has not been heard"
  check "restarted in place" equal "$(result "$run" '.attempts[1].placement')" "$(result "$run" '.attempts[0].placement')"
}
ended() { events "$run" | jq -rs "map(select(.event == \"attempt_ended\"))[0]$1"; }
flights() { on "$1" find /dev/shm -path '*/holdfast-*/flight.*'; }

case_stuck_before_takeover() {
  # The leader that has measured the step time is lost before it can detect a hang: the next leader knows the time, too.
  stuck_before_takeover on_a_spare
  # On the leader's node the agent is a new process, too, which has no message of the rank.
  stuck_before_takeover among_the_ranks --set cluster.spares=0
}
stuck_before_takeover() { # NAME ARGUMENT...
  local name=stuck_$1 leader node slot
  shift
  start_held "$name" "$@"
  mid_run 10
  check "$run: the pace is on record" soon 60 paced
  leader=$(leader_of "$run")
  slot=$(($(placement "$run" | grep -nx "$leader" | cut -d: -f1 || true) + 0))
  ((slot > 0)) || slot=2
  node=$(nth "$slot")
  check "$run: rank $((2 * slot - 1)) is stopped" signal_rank STOP "$node" $((2 * slot - 1))
  signal_leader KILL
  check "$run: another term begins" soon 60 test -e "$home/$run/term/0002"
  check "$run: the hang is found" soon 120 training "$run" 2
  ends_like_the_undisturbed
  check "$run: the ranks were adopted" adopted
  check "$run: the rank is named" equal "$(ended .rank)" $((2 * slot - 1))
  check "$run: so is its node" equal "$(ended .node)" "$node"
  check "$run: as hung" equal "$(ended .cause)" "rank hung"
  echo "# $run: noticed $(since_takeover) s after the takeover"
  check "$run: soon after the takeover" at_least 15 "$(since_takeover)"
}
paced() { events "$run" | jq -es 'any(.event == "pace")'; }
# Whole seconds from the last takeover to the detection of the hang; after it a stack is requested.
since_takeover() {
  events "$run" | jq -rs '(map(select(.event == "attempt_ended"))[0] | .unix - .decided_s) -
    (map(select(.event == "leader_elected")) | last.unix) | floor'
}

case_leader_killed() {
  start_held leader_killed
  mid_run 10
  signal_leader KILL
  check "another term begins" soon 60 test -e "$home/$run/term/0002"
  check "the new leader adopts the ranks" soon 60 adopted
  ends_like_the_undisturbed 0
  check "healthy training was not disturbed" equal "$(result "$run" '.attempts | length')" 1
  check "it was adopted once" equal "$(events "$run" | jq -rs 'map(select(.event == "attempt_adopted")) | length')" 1
}
adopted() { events "$run" | jq -es 'any(.event == "attempt_adopted")'; }

case_agents_stopped() {
  # An agent stands still, and the ranks of its node train. While steps are fast they speak for it, while they are slow its kernel
  # does, until another agent is there. Then the leader: the next one waits for the ranks of its node.
  start_held agents_stopped --set cluster.spares=0
  mid_run 10
  local node seconds leader
  leader=$(leader_of "$run")
  node=$(placement "$run" | grep -vxm 1 "$leader")
  for seconds in 1 2 5; do
    stop_agent "$node" "$seconds"
  done
  hold "$run" 3
  stop_agent "$node" 20
  hold "$run"
  check "$run: the agent was replaced" at_least "$(grep -c 'the agent is replaced' "$home/$run/logs/agent-$node.log")" 1
  check "$run: no node was lost" never node_lost
  stop_agent "$leader" 20
  check "$run: another led" test -e "$home/$run/term/0002"
  check "$run: the ranks were adopted" soon 60 adopted
  ends_like_the_undisturbed 0
  check "$run: no node was lost by the next leader either" never node_lost
  check "$run: training was not disturbed" equal "$(result "$run" '.attempts | length')" 1
}
stop_agent() { # NODE SECONDS
  local agent
  agent=$(agent_of "$1")
  on "$1" kill -STOP "$agent"
  sleep "$2"
  on "$1" kill -CONT "$agent" 2>/dev/null # it may have been replaced
}
never() { events "$run" | jq -es "all(.event != \"$1\")"; }

case_batch_host_killed() {
  # The batch script and the leader are lost with it, and no rank: training does not stop, and saves its state on the shared
  # level. At the end the leader does what the script would have done.
  start_held batch_host_killed --set checkpoint.every=0
  trains_to 5
  local node
  node=$(mini exec scontrol show job "$job" | sed -n 's/.*BatchHost=//p')
  mini kill-node "$node"
  check "another leads" soon 60 test -e "$home/$run/term/0002"
  check "the new leader adopts the ranks" soon 60 adopted
  check "a shared checkpoint appears at once" soon 60 durable "$run" 1
  check "the reason is on record" equal "$(drains .reason)" "the batch host was lost"
  ends_like_the_undisturbed 0
  check "training was not disturbed" equal "$(result "$run" '.attempts | length')" 1
  mini revive-node "$node"
}

case_spare_returns() {
  # It was started anew, and SLURM does not find the step of the agents on it: the agents of the others go on.
  start_held spare_returns
  trains_to 10
  local spare
  spare=$(mini exec sinfo -h -N -o %N | grep -vxF "$(placement "$run"; mini exec scontrol show job "$job" | sed -n 's/.*BatchHost=//p')" | head -n 1)
  mini kill-node "$spare"
  check "the spare is missed" soon 60 has_event node_lost "$spare"
  mini revive-node "$spare"
  check "it is a spare again" soon 60 has_event node_returned "$spare"
  check "training was not disturbed" equal "$(events "$run" | jq -rs 'map(select(.event == "attempt_planned")) | length')" 1
  ends_like_the_undisturbed 0
  check "nor was it later" equal "$(result "$run" '.attempts | length')" 1
}
has_event() { [[ -n $(events "$run" | jq -r --arg event "$1" --arg node "$2" 'select(.event == $event and .node == $node)') ]]; }

case_slow_node() {
  # The link of a node has come back with half of its rate, in what stands in for its /sys.
  local name node port submit_env=HOLDFAST_SYS=/shared/home/sys/%N
  for name in $(mini exec sinfo -h -N -o %N); do
    port=$home/sys/$name/class/infiniband/mlx5_0/ports/1
    mkdir -p "$port"
    echo "4: ACTIVE" >"$port/state"
    echo "400 Gb/sec" >"$port/rate"
  done
  start_held slow_node --set supervise.on_straggler=substitute
  trains_to 10
  check "$run: spares have been looked at" soon 60 spares_seen
  node=$(nth 2)
  echo "200 Gb/sec" >"$home/sys/$node/class/infiniband/mlx5_0/ports/1/rate"
  check "it is named" soon 60 has_event straggler "$node"
  check "training goes on" soon 120 training "$run" 2
  check "without it" equal "$(placement "$run" | grep -cx "$node")" 0
  check "it was evicted" has_event node_evicted "$node"
  ends_like_the_undisturbed
  every_step_once
  check "the ranks saved before they ended" equal "$(result "$run" '.attempts[0].lost_steps')" 0
}

case_slurmctld_down() {
  start_held slurmctld_down
  mid_run 10
  # slurmd must know the job when it is killed, and be back before the job ends, or SLURM notices the end minutes later.
  check "slurmctld has saved its state" soon 60 slurm_saved_since "$home/$run/nodes.json"
  mini kill-slurmctld
  local node
  node=$(nth 2)
  mini kill-node "$node"
  check "substitution needs no slurmctld" soon 120 training "$run" 2
  mini start-slurmctld
  ends_like_the_undisturbed
  mini revive-node "$node"
}

case_out_of_spares() {
  start_held out_of_spares --set cluster.spares=1 --set supervise.when_short=stop
  mid_run 10
  # One after the other: with two of three nodes lost at once, the third cannot exclude that it is cut off itself.
  local first second
  first=$(nth 1)
  second=$(nth 2)
  mini kill-node "$first"
  check "the only spare takes over" soon 120 training "$run" 2
  mini kill-node "$second"
  ends_as out_of_spares 5
  mini revive-node "$first"
  mini revive-node "$second"
}

run_cases "$@"
