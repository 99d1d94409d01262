#!/usr/bin/env bash
# shellcheck disable=SC2317,SC2119,SC2016 # check and soon call most functions; programs of others
# The ways to start a run.
# starts_test.sh HOLDFAST TRAIN TOOL [CASE...]; see tests/support/fault.sh.
set -uo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/support/fault.sh
source "$source/tests/support/fault.sh"

all_cases=(port_taken no_port steps_refused name_missing tmp_full pmix_killed scratch_swept no_descriptors recipes bare_srun own_allocation other_layouts)

case_port_taken() {
  # On three nodes another program holds the first port of the agents: it says nothing, or something else, or refuses to read.
  listen_on dgx001 21000 'sleep'
  listen_on dgx002 21000 'print {$_[0]} "HTTP/1.1 400 Bad Request\r\n\r\n"'
  listen_on dgx003 21000 'print {$_[0]} "\0" x 100000'
  # With this time limit a node that stops for a moment is not taken for lost.
  start_held port_taken --set supervise.port=21000 --set supervise.node_silence_ms=8000
  mid_run 10
  local node
  signal_agent KILL "$(nth 1)"
  mini kill-node "$(nth 2)"
  check "training goes on" soon 120 training "$run" 2
  ends_like_the_undisturbed
  check "two attempts" equal "$(result "$run" '.attempts | length')" 2
  check "no other node was lost" equal "$(events "$run" | jq -rs 'map(select(.event == "node_lost").node) | unique | length')" 1
  check "an agent says who has its port" holds "$(cat "$home/$run"/logs/agent-*.log)" "listening on port 21001; taken: 21000: "
  mini heal
  for node in dgx001 dgx002 dgx003; do on "$node" pkill -f perl.stranger; done
}
# listen_on NODE PORT WHAT: as another user; WHAT, in Perl, is done with each connection, which stays open.
listen_on() {
  on "$1" setpriv --reuid=61001 --regid=61001 --clear-groups perl -MIO::Socket::INET -e 'if (fork) { exit }
    $0 = "perl.stranger"; open STDIN, "</dev/null"; open STDOUT, ">/dev/null"; open STDERR, ">/dev/null";
    my ($port, $what) = @ARGV;
    my $s = IO::Socket::INET->new(LocalPort => $port, Listen => 8, ReuseAddr => 1) or exit 1;
    my $do = eval "sub { $what }" or die; my @open;
    $SIG{PIPE} = "IGNORE";
    while (my $c = $s->accept) { $c->autoflush; push @open, $c; $do->($c) }' "$2" "$3"
}

case_no_port() {
  # All ports of the agent of a node are taken: a spare gets its slot, and the reason is on record.
  local port
  for port in {21000..21007}; do listen_on dgx001 "$port" 'print {$_[0]} "no\n"'; done
  start_held no_port --set supervise.port=21000 --set supervise.start_s=15
  check "dgx001 is lost" soon 90 lost_node dgx001
  check "because others have its ports" holds "$(events "$run" | jq -rs 'map(select(.event == "node_lost")) | first.evidence')" \
    "what listens there is no agent of this run"
  check "its agent says whose they are" holds "$(cat "$home/$run/logs/agent-dgx001.log")" \
    "no port is free for the agent on dgx001 (21000: a process of intruder, 21001: "
  ends_as "done" 0
  check "$run: the same bits" equal "$(result "$run" .state_digest)" "$undisturbed"
  on dgx001 pkill -f perl.stranger
}
lost_node() { events "$run" | jq -es --arg n "$1" 'any(.event == "node_lost" and .node == $n)' >/dev/null; }

case_steps_refused() {
  # The job has had all the steps that the site allows: the end says so, in SLURM's words, and does not wait for agents.
  local status=0 said
  echo MaxStepCount=1 >>"$dir/etc/slurm/slurm.conf"
  mini exec --root scontrol reconfigure
  soon 180 all_idle
  copy_job
  # shellcheck disable=SC2016 # for the shell in the allocation
  said=$(mini exec --chdir /shared/home salloc -N 2 --exclusive --no-kill sh -c 'srun -N 1 true; exec holdfast run "$@"' sh \
    job.toml -N 1 --spares 1 --set data.tokens=/shared/home/tokens.bin --set run.dir=steps_refused "${test_sets[@]}" 2>&1) || status=$?
  check "the run can be continued elsewhere" equal "$status" 75
  check "because SLURM refuses steps" holds "$said" "SLURM refuses every step: srun: error: "
  check "in its own words" holds "$said" "Step limit reached for this job"
  sed -i '/^MaxStepCount/d' "$dir/etc/slurm/slurm.conf"
  mini exec --root scontrol reconfigure
}

case_name_missing() {
  # Nodes cannot resolve the name of another one: the address that the batch host knows serves.
  local node
  for node in dgx002 dgx003 dgx004; do hide_names "$node"; done
  start_held name_missing
  mid_run 10
  mini kill-node "$(nth 2)"
  check "training goes on" soon 120 training "$run" 2
  ends_like_the_undisturbed
  check "no other node was lost" equal "$(events "$run" | jq -rs 'map(select(.event == "node_lost").node) | unique | length')" 1
  mini heal
  for node in dgx002 dgx003 dgx004; do on "$node" umount /etc/hosts 2>/dev/null || true; done
}
# hide_names NODE: it knows its own name, that of the login host and no other.
hide_names() {
  # shellcheck disable=SC2016 # for the node's shell
  on "$1" bash -c 'grep -E " (localhost|login|$0)$" /etc/hosts >/tmp/hosts && mount --bind /tmp/hosts /etc/hosts' "$1"
}

case_tmp_full() {
  # On the leader's node, a spare, and on a node with ranks: nothing of the start of ranks is kept there.
  start_held tmp_full
  mid_run 10
  local node
  for node in "$(leader_of "$run")" "$(nth 1)"; do check "the /tmp of $node is full" fill_tmp "$node"; done
  check "$run: a rank is killed" signal_rank KILL "$(nth 2)"
  check "training goes on" soon 120 training "$run" 2
  ends_like_the_undisturbed
  check "two attempts" equal "$(result "$run" '.attempts | length')" 2
  # Where the next job begins, these nodes are unfit, and no node has the interface that its cluster file names.
  local full=("$(leader_of "$run")" "$(nth 1)")
  sed 's/^control_interface = "eth0"/control_interface = "train0"/' "$source/configs/clusters/minipod.toml" >"$home/odd.toml"
  start unfit --set cluster.file=/shared/home/odd.toml --set train.steps=10
  ends_as "done" 0
  check "unfit: one attempt" equal "$(result "$run" '.attempts | length')" 1
  for node in "${full[@]}"; do check "unfit: $node has no slot" equal "$(placement "$run" | grep -cx "$node")" 0; done
  check "unfit: a spare has taken it before ranks started" holds "$(events "$run" | jq -c 'select(.event == "spare_promoted")')" "\"from\":\"${full[1]}\""
  check "unfit: what all nodes lack is said once" equal \
    "$(events "$run" | jq -rs 'map(select(.event == "finding_shared" and .check == "net.control")) | length')" 1
  check "unfit: and of no node" equal "$(events "$run" | jq -c 'select(.event == "spare_health")' | grep -c net.control)" 0
  echo "# unfit: $(events "$run" | jq -rs '(map(select(.event == "attempt_planned"))[0].unix - map(select(.event == "leader_elected"))[0].unix) * 1000 | floor') ms from the leader to the plan"
  for node in "${full[@]}"; do on "$node" umount /tmp; done
}
# shellcheck disable=SC2016 # for the node's shell
fill_tmp() {
  on "$1" bash -c \
    'mount -t tmpfs -o size=64k,nr_inodes=8,mode=1777 full /tmp && { n=0; while touch /tmp/$((n++)); do :; done 2>/dev/null; true; }'
}

case_no_descriptors() {
  # An agent that can open nothing starts no rank and cannot tell what runs on its node: another one takes its place.
  start_held no_descriptors
  mid_run 10
  local node
  node=$(nth 1)
  check "the agent of $node may open no file any more" mini exec --node "$node" prlimit --nofile=4:4 --pid "$(on "$node" pgrep -f '^[^ ]*holdfast agent .*--serve')"
  check "$run: a rank is killed" signal_rank KILL "$(nth 2)"
  check "training goes on" soon 120 training "$run" 2
  ends_like_the_undisturbed
  check "it has given way to another agent" holds "$(cat "$home/$run/logs/agent-$node.log")" "the agent was ended by signal 9; starting another"
  check "no node was lost" equal "$(events "$run" | jq -rs 'map(select(.event == "node_lost").node) | join(" ")')" ""
}

case_pmix_killed() {
  # Its ranks end, and its node is to blame.
  start_held pmix_killed
  mid_run 10
  local node
  node=$(nth 1)
  on "$node" pkill -KILL -x holdfast-pmix
  check "training goes on" soon 120 training "$run" 2
  ends_like_the_undisturbed
  check "two attempts" equal "$(result "$run" '.attempts | length')" 2
  check "the node is named" equal "$(ended 0 .node)" "$node"
  check "with what it did" equal "$(ended 0 .cause)" "PMIx server ended"
  check "a spare has its slot" lacks "$(placement "$run")" "$node"
}
# ended N FIELD: of the end of an attempt, from 0.
ended() { events "$run" | jq -rs "map(select(.event == \"attempt_ended\"))[$1]$2"; }
lacks() { [[ $1 != *"$2"* ]] || { printf 'got:  %s\nwant without: %s\n' "$1" "$2"; false; }; }

case_scratch_swept() {
  # As systemd-logind does when the user's last session on a node ends: the files of an agent in /dev/shm are gone.
  start_held scratch_swept
  mid_run 10
  local node
  for node in "$(leader_of "$run")" "$(nth 1)"; do
    check "$node: something is swept" on "$node" bash -c 'ls -d /dev/shm/holdfast-61000-* && rm -r /dev/shm/holdfast-61000-*'
  done
  check "$run: a rank is killed" signal_rank KILL "$(nth 2)"
  check "training goes on" soon 120 training "$run" 2
  ends_like_the_undisturbed
  check "two attempts" equal "$(result "$run" '.attempts | length')" 2
}

# recipe NAME RANKS_PER_NODE SET...: configs/jobs/llama2-NAME with a small model instead of Llama, on two nodes and a
# spare, for four steps. Its sharding, frozen weights, recomputation and types are unchanged.
recipe() {
  local name=$1 per_node=$2
  run=recipe-$1
  shift 2
  soon 180 all_idle || mini exec sinfo -N
  job=$(mini exec --chdir /shared/home holdfast submit "llama2-$name" --parsable --set "run.dir=/shared/home/$run" \
    --set cluster.file=minipod --set cluster.nodes=2 --set "cluster.ranks_per_node=$per_node" --set cluster.spares=1 \
    --set model.file=/shared/home/llama --set train.steps=4 --set optim.warmup_steps=2 --set train.sequence=64 \
    --set train.global_batch=8 --set train.lanes=0 "$@") ||
    { echo "Bail out! submit of $name failed"; exit 1; }
  ends_as "done" 0
}

case_recipes() {
  # From a Hugging Face folder to text: the run above is exported to one, the recipes start from it, and their results
  # are exported again.
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

case_bare_srun() {
  # Without agents: PMIx and Open MPI under a plain srun, another placement, the same bits.
  run=bare_srun
  soon 180 all_idle
  check "srun alone trains" mini exec --chdir /shared/home env OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive srun --mpi=pmix -N2 --ntasks-per-node=2 \
    holdfast-train job.toml --set data.tokens=/shared/home/tokens.bin --set "run.dir=/shared/home/$run" "${test_sets[@]}"
  check "$run: the same bits" equal "$(result "$run" .state_digest)" "$undisturbed"
}

case_own_allocation() {
  # Without `submit`: a job array with a user's script and a run directory for each task, then a shell with an allocation.
  soon 180 all_idle
  copy_job
  cat >"$home/array.sh" <<'END'
#!/bin/bash
#SBATCH --nodes=2 --exclusive --no-kill --signal=B:USR1@60 --array=1-2 --output=/shared/home/array-%a.log
exec holdfast run job.toml -N 1 --spares 1 --set data.tokens=/shared/home/tokens.bin --set "run.dir=array_$SLURM_ARRAY_TASK_ID" "$@"
END
  mini exec --chdir /shared/home sbatch array.sh "${test_sets[@]}"
  for run in array_1 array_2; do
    check "$run: the run is over" soon "$run_limit" over "$run"
    check "$run: the same bits" equal "$(result "$run" .state_digest)" "$undisturbed"
  done
  soon 180 all_idle
  run=salloc
  check "$run: done" mini exec --chdir /shared/home salloc -N 3 --exclusive --no-kill holdfast run job.toml --spares 1 \
    --set data.tokens=/shared/home/tokens.bin --set run.dir=salloc "${test_sets[@]}"
  check "$run: the same bits" equal "$(result "$run" .state_digest)" "$undisturbed"
  check "$run: once more, by its directory" mini exec --chdir /shared/home salloc -N 3 --exclusive --no-kill \
    holdfast run salloc
}

case_other_layouts() {
  # A job file that leaves its lanes open: the same bits on any nodes, and of a run that is submitted again on fewer and on more.
  local open=(--set train.lanes=0 --set train.global_batch=8)
  start one_node "${open[@]}" -N 1
  ends_as "done" 0
  start_held moved "${open[@]}"
  stops_after_step_of 1
  start_held moved "${open[@]}" -N 1
  stops_after_step_of 2
  start moved "${open[@]}" -N 3 --spares 1
  ends_as "done" 0
  check "$run: three nodes in the end" equal "$(placement "$run" | wc -l)" 3
  check "$run: the bits of one node" equal "$(result "$run" .state_digest)" "$(result one_node .state_digest)"
  every_step_once
}
# stops_after_step_of ATTEMPT: orders the run to end when that attempt trains.
stops_after_step_of() {
  check "$run: attempt $1 trains" soon "$run_limit" training "$run" "$1"
  check "$run: is told to end" mini exec holdfast ctl "/shared/home/$run" stop
  check "$run: is over" soon 120 over "$run"
  check "$run: stopped" equal "$(result "$run" .status)" stopped
  check "$run: has left the queue" soon 60 job_gone "$job"
  rm "$home/$run/result.json"
}

run_cases "$@"
