#!/usr/bin/env bash
# shellcheck disable=SC2317 # check and soon call most functions
# The promise, on real SLURM, Open MPI and HDF5: a job that loses nodes, ranks or its leader ends in the same bits as one
# that lost nothing, and it really came back from a checkpoint. recovery_test.sh HOLDFAST TRAIN TOOL [CASE...]
# Speaks TAP; exits 77 where there is no SLURM to test with.
set -uo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/support/tap.sh
source "$source/tests/support/tap.sh"
need_cluster "$@"
programs=("$(realpath "$1")" "$(realpath "$2")" "$(realpath "$3")")
shift 3
cases=("$@")
((${#cases[@]})) || cases=(node_killed partner_killed adapters recipes rank_killed rank_stuck drilled killed_in_checkpoint leader_killed batch_host_killed drained newest_checkpoint_damaged slurmctld_down out_of_spares bare_srun own_allocation crash_loop user_error any_program security)

HOLDFAST_MINIPOD_DIR=$(mktemp -d /var/tmp/hf-fault.XXXXXX)
export HOLDFAST_MINIPOD_DIR
# shellcheck source=tests/support/pod.sh
source "$source/tests/support/pod.sh"
trap '"$pod" down --purge 2>/dev/null; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP

mini up --nodes 4 || { echo "Bail out! no minipod"; exit 1; }
install_programs "${programs[@]}"
make_tokens || { echo "Bail out! no tokens"; exit 1; }

run_limit=240 # seconds until a run must be over, on the slowest machine
# start NAME ARGUMENT...: submits once every node is free; sets `run` and `job`.
start() {
  run=$1
  soon 180 all_idle || mini exec sinfo -N
  job=$(submit "$@") || { echo "Bail out! submit failed"; exit 1; }
}
on() { local node=$1; shift; mini exec --root --node "$node" --chdir / "$@"; }
nth() { placement "$run" | sed -n "$1p"; }

# ends_as STATUS EXIT_CODE
ends_as() {
  check "$run: the run is over" soon "$run_limit" over "$run"
  check "$run: status $1" equal "$(result "$run" .status)" "$1"
  check "$run: exit code $2" equal "$(result "$run" .exit_code)" "$2"
  check "$run: the job leaves the queue" soon 60 job_gone "$job"
}
# ends_like_the_undisturbed [RESTORES]: the same bits, and at least RESTORES (1) attempts came back from a checkpoint.
ends_like_the_undisturbed() {
  ends_as "done" 0
  check "$run: the same bits" equal "$(result "$run" .state_digest)" "$undisturbed"
  check "$run: the same loss" equal "$(result "$run" .final_loss)" "$undisturbed_loss"
  local restored node
  restored=$(result "$run" '[.attempts[] | select(.restored_from != null and .restored_from.step > 0)] | length')
  check "$run: state was really restored" at_least "$restored" "${1-1}"
  local most
  most=$(result "$run" '[.attempts[].lost_steps] | max')
  check "$run: no attempt lost more than ${most_lost-1} steps" at_least "${most_lost-1}" "$most"
  # Agents that were told to leave do so within moments; those of dead nodes cannot.
  for node in $(placement "$run"); do
    check "$run: nothing stays in the memory of $node" soon 20 nothing_stays_on "$node"
  done
  ((failed == 0)) || story "$run" | sed 's/^/# /'
}

nothing_stays_on() { [[ -z $(on "$1" find /dev/shm -name 'holdfast-*') ]]; }
# came_back_from ATTEMPT LEVEL: that attempt's state, from 1.
came_back_from() {
  check "$run: attempt $1 restored from level $2" equal "$(result "$run" ".attempts[$1 - 1].restored_from.level")" "$2"
}

mid_run() { # STEP: a durable checkpoint and that many steps
  check "$run: reaches step $1" soon "$run_limit" step_reached "$run" "$1"
  check "$run: has a durable checkpoint" soon 60 durable "$run" 10
}

undisturbed_run() {
  start undisturbed
  ends_as "done" 0
  undisturbed=$(result undisturbed .state_digest)
  undisturbed_loss=$(result undisturbed .final_loss)
  check "the undisturbed run needed one attempt" equal "$(result undisturbed '.attempts | length')" 1
  check "its checkpoints are sound" mini exec holdfast ckpt verify /shared/home/undisturbed
  check "metrics: one line per step" equal "$(jq -s '[.[].step] == [range(1; 201)]' "$home/undisturbed/metrics.jsonl")" true
}

case_node_killed() {
  # Its replica has the same state, and the shared level has nothing at all.
  start node_killed --set checkpoint.every=0
  check "$run: reaches step 30" soon "$run_limit" step_reached "$run" 30
  local node slot_after
  node=$(nth 2)
  mini kill-node "$node"
  check "training goes on" soon 60 training "$run" 2
  check "$run: without a checkpoint" equal "$(events "$run" | jq -rs 'map(select(.event == "checkpoint_durable")) | length')" 0
  ends_like_the_undisturbed
  came_back_from 2 peer
  check "the culprit is named" equal "$(result "$run" '.attempts[0].node')" "$node"
  slot_after=$(result "$run" '.attempts[1].placement[0]')
  check "the other slot kept its node" equal "$slot_after" "$(result "$run" '.attempts[0].placement[0]')"
  check "metrics: one line per step all the same" equal "$(jq -s '[.[].step] == [range(1; 201)]' "$home/$run/metrics.jsonl")" true
  mini revive-node "$node"
}

case_partner_killed() {
  # No replica: what the node held, its partner has a copy of.
  start partner_killed --set checkpoint.every=0 --set shard.strategy=full_shard
  check "$run: reaches step 30" soon "$run_limit" step_reached "$run" 30
  local node
  node=$(nth 2)
  mini kill-node "$node"
  ends_like_the_undisturbed
  came_back_from 2 partner
  mini revive-node "$node"
}

case_adapters() {
  # Adapters beside the undisturbed run's weights, in 4 bits: every start reads those again, no checkpoint has them.
  local tuning=(--set model.weights=/shared/home/undisturbed --set lora.rank=4 --set lora.dropout=0.1 --set lora.base=nf4
    --set 'lora.targets=["q_proj", "v_proj", "down_proj"]' --set checkpoint.every=0 --set train.steps=120)
  start adapters_undisturbed "${tuning[@]}"
  ends_as "done" 0
  local undisturbed undisturbed_loss node
  undisturbed=$(result adapters_undisturbed .state_digest) undisturbed_loss=$(result adapters_undisturbed .final_loss)
  start adapters "${tuning[@]}"
  check "$run: reaches step 30" soon "$run_limit" step_reached "$run" 30
  node=$(nth 2)
  mini kill-node "$node"
  ends_like_the_undisturbed
  came_back_from 2 peer
  mini revive-node "$node"
}

# recipe NAME RANKS_PER_NODE SET...: configs/jobs/llama2-NAME with a small model in Llama's place, on two nodes and a
# spare, for four steps. What it shards, freezes, recomputes and in which types is as it stands there.
recipe() {
  local name=$1 per_node=$2
  run=recipe-$1
  shift 2
  soon 180 all_idle || mini exec sinfo -N
  job=$(mini exec --chdir /shared/home holdfast submit "llama2-$name" --parsable --set "run.dir=/shared/home/$run" \
    --set cluster.file=minipod --set cluster.nodes=2 --set "cluster.ranks_per_node=$per_node" --set cluster.spares=1 \
    --set model.file=/shared/home/llama --set train.steps=4 --set optim.warmup_steps=2 --set train.sequence=64 \
    --set train.leaves=8 --set train.lanes=0 "$@") ||
    { echo "Bail out! submit of $name failed"; exit 1; }
  ends_as "done" 0
}

case_recipes() {
  # From a Hugging Face folder to text: what was trained above becomes one, the recipes begin with it, and what they make
  # goes out again.
  check "export as a Hugging Face folder" mini exec holdfast ckpt export /shared/home/undisturbed /shared/home/llama
  local tokens=(--set data.tokens=/shared/home/tokens.bin) weights=(--set model.weights=/shared/home/llama)
  recipe 7b-pretrain 2 "${tokens[@]}" --set 'data.mixture=[]'
  recipe 7b-finetune 1 "${tokens[@]}" "${weights[@]}"
  recipe 13b-finetune 1 "${tokens[@]}" "${weights[@]}"
  recipe 70b-finetune 2 "${tokens[@]}" "${weights[@]}" --set shard.group=2
  recipe 70b-lora 1 "${tokens[@]}" "${weights[@]}" --set lora.base=nf4
  check "it began with the weights" at_least "$(jq -s '(.[0].loss < 5.5) | if . then 1 else 0 end' "$home/$run/metrics.jsonl")" 1
  check "its adapters, as PEFT has them" mini exec holdfast ckpt export "/shared/home/$run" /shared/home/peft
  check "the model with them in it" mini exec holdfast ckpt export "/shared/home/$run" /shared/home/merged --merge
  local model writes=(--prompt "The licence" --max-tokens 8)
  check "the run writes, by the tokenizer of its tokens" mini exec holdfast generate "/shared/home/$run" "${writes[@]}"
  for model in peft merged; do
    check "$model writes" mini exec holdfast generate "/shared/home/$model" --tokenizer /shared/home/tokens.model "${writes[@]}"
  done
}

case_rank_killed() {
  start rank_killed --set checkpoint.every=0
  check "$run: reaches step 30" soon "$run_limit" step_reached "$run" 30
  local node
  node=$(nth 1)
  on "$node" pkill -KILL -o -x holdfast-train
  ends_like_the_undisturbed
  # Killed while it sealed its newest snapshot, it takes that step from its replica.
  check "$run: no shared file was needed" holds "local peer" "$(result "$run" '.attempts[1].restored_from.level')"
  check "spares have been looked at" at_least "$(events "$run" | jq -s 'map(select(.event == "spare_health" and .spare and .fitness != "unknown")) | length')" 1
  check "restarted in place" equal "$(result "$run" '.attempts[1].placement')" "$(result "$run" '.attempts[0].placement')"
  check "the signal is on record" equal "$(events "$run" | jq -rs 'map(select(.event == "rank_exited"))[0].status')" 137
}

case_rank_stuck() {
  # It lives, holds its connections, and does nothing: the others wait for it wherever they happen to need it.
  start rank_stuck --set supervise.step_s=5
  mid_run 30
  local second
  second=$(nth 2)
  # shellcheck disable=SC2016 # for the node's shell
  check "$run: rank 3 is stopped" on "$second" bash -c \
    'for p in $(pgrep -x holdfast-train); do grep -qzx HOLDFAST_RANK=3 /proc/$p/environ && exec kill -STOP $p; done; exit 1'
  check "$run: its flight record is there" holds "$(flights "$second")" ".1.3"
  ends_like_the_undisturbed
  check "it is named" equal "$(ended .rank)" 3
  check "so is its node" equal "$(ended .node)" "$second"
  check "as hung" equal "$(ended .cause)" "rank hung"
  check "with what speaks against it" holds "$(ended .evidence)" "process of rank 3 has not been heard"
  check "restarted in place" equal "$(result "$run" '.attempts[1].placement')" "$(result "$run" '.attempts[0].placement')"
}
ended() { events "$run" | jq -rs "map(select(.event == \"attempt_ended\"))[0]$1"; }
flights() { on "$1" find /dev/shm -name 'holdfast-flight.*'; }

case_drilled() {
  # What users do to their own runs: a campaign with a baseline, blows, and a verdict of its own. Its cases are those of
  # configs/drills/ci.toml: a node and then the spare that took its slot, a node that freezes, the leader cut off.
  check "the campaign passes" "${programs[0]}" drill ci "$source/tests/fault/job.toml" --minipod "$dir" --report "$dir/drill" \
    --set data.tokens=/shared/home/tokens.bin --set "model.file=$source/tests/fault/model.toml"
  check "its baseline is ours" equal "$(jq -r '.cases[].state_digest' "$dir/drill.json" | sort -u)" "$undisturbed"
  check "every run came back from saved state" at_least "$(jq '[.cases[].restored] | min' "$dir/drill.json")" 1
  sed 's/^/# /' "$dir/drill.md"
  # The same, against a baseline that is not its own: the verdict must be able to fail.
  local kept
  kept=$(echo "$home"/drills/baseline-*/result.json)
  jq '.state_digest = "0123456789abcdef"' "$kept" >"$kept.new" && mv "$kept.new" "$kept"
  check "a run with other bits fails" fails_with 1 "${programs[0]}" drill ci "$source/tests/fault/job.toml" --minipod "$dir" --report "$dir/drill" \
    --set data.tokens=/shared/home/tokens.bin --set "model.file=$source/tests/fault/model.toml" --only node_frozen
  check "and says so" holds "$(jq -r '.cases[0].wrong[]' "$dir/drill.json")" "other bits"
}
fails_with() { local code=$1; shift; "$@"; (($? == code)); }

case_killed_in_checkpoint() {
  # Without a local level: the run comes back from the checkpoint before the torn one.
  start killed_in_checkpoint --set checkpoint.local=none --set checkpoint.every=3 # often, so that one is under way when we look
  mid_run 25
  local node
  node=$(nth 2)
  soon 60 compgen -G "$home/$run/checkpoints/*.tmp-*"
  mini kill-node "$node"
  most_lost=10 ends_like_the_undisturbed
  came_back_from 2 shared
  mini revive-node "$node"
}

case_leader_killed() {
  start leader_killed
  mid_run 30
  local node
  node=$(leader_of "$run")
  on "$node" kill -KILL "$(leader_pid "$run")"
  check "another epoch begins" soon 30 test -e "$home/$run/epoch/0002"
  ends_like_the_undisturbed 0
  check "healthy training was not disturbed" equal "$(result "$run" '.attempts | length')" 1
  check "the new leader adopted it" equal "$(events "$run" | jq -rs 'map(select(.event == "attempt_adopted")) | length')" 1
}

case_batch_host_killed() {
  # With it go the batch script, the leader, and mpirun: the run goes on, and brings its state to where it outlives the
  # job. At the end the leader does what the script would have done.
  # The ranks train on meanwhile: with the usual patience they would be done before anybody is missed.
  start batch_host_killed --set checkpoint.every=0 --set supervise.leader_silence_ms=1000 --set supervise.node_silence_ms=1000
  check "$run: reaches step 5" soon "$run_limit" step_reached "$run" 5
  local node
  node=$(mini exec scontrol show job "$job" | sed -n 's/.*BatchHost=//p')
  mini kill-node "$node"
  check "another leads" soon 30 test -e "$home/$run/epoch/0002"
  check "training goes on" soon 60 training "$run" 2
  check "a shared checkpoint appears at once" soon 30 durable "$run" 1
  check "the reason is on record" equal "$(drains .reason)" "the batch host was lost"
  ends_like_the_undisturbed
  came_back_from 2 local
  mini revive-node "$node"
}
drains() { events "$run" | jq -rs "map(select(.event == \"drain\"))[] | $1"; }

case_drained() {
  # The time limit is near: the state is saved, and the next job of the run goes on from there.
  start drained --set checkpoint.every=0
  check "$run: reaches step 30" soon "$run_limit" step_reached "$run" 30
  mini exec scancel --batch --signal=USR1 "$job"
  check "$run: is over" soon 60 over "$run"
  check "$run: drained" equal "$(result "$run" .status)" drained
  check "$run: exit code 75" equal "$(result "$run" .exit_code)" 75
  check "nothing newer than its last checkpoint" equal "$(result "$run" .durable_step)" "$(result "$run" '.attempts[0].last_step')"
  check "back in the queue" soon 60 queued
  # (SLURM makes a job that was put back wait for two minutes: its nodes must have forgotten it)
  soon 60 all_idle
  sleep 5
  check "it may start now" mini exec scontrol update "JobId=$job" StartTime=now
  check "the next job trains" soon 90 training "$run" 2
  # Cancelled: SLURM signals every process of the job. The same, but it stays away until somebody submits it again.
  rm "$home/$run/result.json"
  mini exec scancel "$job"
  check "$run: is over again" soon 60 over "$run"
  check "$run: drained again" equal "$(result "$run" .status)" drained
  check "$run: the reason" equal "$(drains .reason | tail -n 1)" SIGTERM
  check "$run: has left the queue" soon 60 job_gone "$job"
  rm "$home/$run/result.json"
  soon 60 all_idle
  job=$(submit drained --set checkpoint.every=0)
  most_lost=0 ends_like_the_undisturbed 2
  echo "# $run: $(result "$run" '.attempts | length') attempts (3 where SLURM's signal reaches the guardians alone)"
  check "metrics: one line per step all the same" equal "$(jq -s '[.[].step] == [range(1; 201)]' "$home/$run/metrics.jsonl")" true
}
queued() { [[ $(mini exec squeue -h -j "$job" -o %T) == PENDING ]]; }

case_newest_checkpoint_damaged() {
  start newest_checkpoint_damaged --set checkpoint.local=none
  mid_run 30
  # Flip a byte in the newest durable checkpoint, then make the run come back to it.
  local node newest
  node=$(nth 2)
  mini freeze-node "$node"
  newest=$(find "$home/$run/checkpoints" -maxdepth 1 -name 'step-????????' | sort | tail -n 1)
  # (near the end: tensor data; the head holds HDF5's own tables, which the loader does not need)
  printf '\xff\x55\xaa' | dd of="$newest/shard-00001.h5" bs=1 seek=$(($(stat -c %s "$newest/shard-00001.h5") - 5000)) conv=notrunc status=none
  most_lost=20 ends_like_the_undisturbed
  check "a line says why the older one was taken" holds "$(cat "$home/$run"/logs/attempt-*/rank-00000.log)" "$(basename "$newest")"
  mini thaw-node "$node"
}

case_slurmctld_down() {
  # Each attempt waits before it trains: slurmctld saves its state only every few seconds and must know the job when it is
  # killed; and it must be back before the job ends, or SLURM takes minutes to notice the end.
  start slurmctld_down --set rank.launch=mpi --set 'rank.command=["sh", "-c", "sleep 8; exec holdfast-train"]'
  mid_run 25
  mini kill-slurmctld
  local node
  node=$(nth 2)
  mini kill-node "$node"
  check "substitution needs no slurmctld" soon 60 placed_anew
  mini start-slurmctld
  ends_like_the_undisturbed
  mini revive-node "$node"
}
placed_anew() { events "$run" | jq -e 'select(.event == "placement_verified" and .attempt == 2)' | grep -q attempt; }

case_out_of_spares() {
  start out_of_spares --set cluster.spares=1 --set supervise.when_short=stop
  mid_run 30
  # One after the other: with two of three gone at once, nobody may say that it is not he who is cut off.
  local first second
  first=$(nth 1)
  second=$(nth 2)
  mini kill-node "$first"
  check "the only spare takes over" soon 60 training "$run" 2
  mini kill-node "$second"
  ends_as out_of_spares 5
  mini revive-node "$first"
  mini revive-node "$second"
}

case_bare_srun() {
  # No agents at all: PMIx and Open MPI under a plain srun, another placement, the same bits.
  run=bare_srun
  soon 60 all_idle
  check "srun alone trains" mini exec --chdir /shared/home env OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive srun --mpi=pmix -N2 --ntasks-per-node=2 \
    holdfast-train job.toml --set data.tokens=/shared/home/tokens.bin --set "run.dir=/shared/home/$run"
  check "$run: the same bits" equal "$(result "$run" .state_digest)" "$undisturbed"
}

case_own_allocation() {
  # No `submit`: a job array with a script of one's own, a run directory for each task; then a shell with an allocation.
  soon 180 all_idle
  cp "$source/tests/fault/"{job,model}.toml "$home/"
  cat >"$home/array.sh" <<'END'
#!/bin/bash
#SBATCH --nodes=2 --exclusive --no-kill --signal=B:USR1@60 --array=1-2 --output=/shared/home/array-%a.log
exec holdfast run job.toml -N 1 --spares 1 --set data.tokens=/shared/home/tokens.bin --set "run.dir=array_$SLURM_ARRAY_TASK_ID"
END
  mini exec --chdir /shared/home sbatch array.sh
  for run in array_1 array_2; do
    check "$run: the run is over" soon "$run_limit" over "$run"
    check "$run: the same bits" equal "$(result "$run" .state_digest)" "$undisturbed"
  done
  soon 60 all_idle
  run=salloc
  check "$run: done" mini exec --chdir /shared/home salloc -N 3 --exclusive --no-kill holdfast run job.toml --spares 1 \
    --set data.tokens=/shared/home/tokens.bin --set run.dir=salloc
  check "$run: the same bits" equal "$(result "$run" .state_digest)" "$undisturbed"
  check "$run: once more, by its directory" mini exec --chdir /shared/home salloc -N 3 --exclusive --no-kill \
    holdfast run salloc
}

case_crash_loop() {
  start crash_loop --set 'rank.command=["sh", "-c", "sleep 0.2; exit 9"]'
  ends_as failed 93
  check "three attempts, no more" equal "$(result "$run" '.attempts | length')" 3
}

case_user_error() {
  start user_error --set data.tokens=/shared/home/text.txt
  ends_as failed 2
  check "one attempt" equal "$(result "$run" '.attempts | length')" 1
  check "the reason is told" holds "$(result "$run" .why)" "token"
}

case_any_program() {
  # Not a Holdfast program: it sees torch's names; a killed node is replaced all the same.
  # shellcheck disable=SC2016 # for the rank's shell
  start any_program --set 'rank.command=["sh", "-c", "echo rank $RANK of $WORLD_SIZE local $LOCAL_RANK attempt $HOLDFAST_ATTEMPT; sleep 12"]'
  check "ranks are up" soon 60 eval 'events any_program | grep -q placement_verified'
  local node
  node=$(nth 2)
  mini kill-node "$node"
  ends_as "done" 0
  check "two attempts" equal "$(result "$run" '.attempts | length')" 2
  check "the environment" equal "$(cat "$home/$run/logs/attempt-0002/rank-00003.log")" "rank 3 of 4 local 1 attempt 2"
  mini revive-node "$node"
}

case_security() {
  # Another user of the same node: he reads nothing of the run, and no agent listens to him.
  start security
  check "$run: reaches step 10" soon "$run_limit" step_reached "$run" 10
  local node address port secret agent before file
  node=$(nth 1)
  address=$(jq -r --arg n "$node" '.nodes[] | select(.name == $n).address' "$home/$run/nodes.json")
  port=$(jq -r '.nodes[0].port' "$home/$run/nodes.json")
  secret=$(<"$home/$run/secret")
  agent=$(on "$node" pgrep -n -f '^[^ ]*holdfast agent')
  before=$(resident "$node" "$agent")
  check "nobody else lists the run directory" denied intruder "$node" ls "/shared/home/$run"
  check "nobody else reads the secret" denied intruder "$node" cat "/shared/home/$run/secret"
  check "something lies in the memory of $node" at_least "$(on "$node" find /dev/shm /tmp -name 'holdfast*' | wc -l)" 2
  for file in $(on "$node" find /dev/shm /tmp -path '*holdfast*' \( -type f -o -type s \)); do
    check "its owner opens ${file##*/}" mini exec --node "$node" --chdir / test -r "$file" -a -w "$file"
    check "nobody else does" denied intruder "$node" test -r "$file" -o -w "$file"
  done
  # He says what he likes, without end: the agent hangs up, and keeps nothing of it.
  check "the agent hangs up on a stranger" intruder "$node" timeout 20 bash -c \
    "exec 3<>/dev/tcp/$address/$port; (yes hello | head -c 100000000 >&3) 2>/dev/null; timeout 10 cat <&3 >/dev/null 2>&1; ((\$? != 124))"
  check "and on one that says nothing" intruder "$node" timeout 30 bash -c "exec 3<>/dev/tcp/$address/$port; cat <&3 >/dev/null"
  check "the agent is the same" equal "$(on "$node" pgrep -n -f '^[^ ]*holdfast agent')" "$agent"
  check "and no larger (kB)" at_least $((before + 16384)) "$(resident "$node" "$agent")"
  check "faults are not taken: drill.allowed is false" denied mini exec holdfast inject "/shared/home/$run" "$node" kill_agent
  mini exec --node "$node" --chdir / env "LEAK=$secret" sleep 4 &
  check "a leak would be found" soon 4 leaks "$node" "$secret"
  wait $!
  for node in $(jq -r '.nodes[].name' "$home/$run/nodes.json"); do
    check "no command line or environment on $node has the secret" equal "$(places_of_secret "$node" "$secret")" 0
  done
  check "no file of the run but one has it" equal "$(grep -rlF "$secret" "$home/$run" | xargs -r -n 1 basename)" secret
  ends_like_the_undisturbed 0
}
intruder() { local node=$1; shift; mini exec --intruder --node "$node" --chdir / "$@"; }
denied() { if "$@" >/dev/null 2>&1; then echo "it was allowed"; return 1; fi; }
# The secret goes in by stdin: a word of the search itself would be found.
places_of_secret() {
  # shellcheck disable=SC2016 # for the node's shell
  on "$1" bash -c 'read -r secret
    cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr "\0" "\n" | grep -cF -f <(printf "%s\n" "$secret")' <<<"$2"
}
leaks() { (($(places_of_secret "$@") > 0)); }
# shellcheck disable=SC2016 # for awk
resident() { on "$1" awk '/^VmRSS/ { print $2 }' "/proc/$2/status"; }

undisturbed_run
for name in "${cases[@]}"; do "case_$name"; done
conclude
