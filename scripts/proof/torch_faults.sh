#!/usr/bin/env bash
# shellcheck disable=SC2317,SC2119 # check and soon call most functions
# FSDP2 with DCP (examples/pytorch/fsdp.py) on a minipod of 3 active nodes and a spare, as it stands and without the lines that
# protect it (plain), in every fault; the same digest as undisturbed at the end, or the stated stop. What `ctl` and `status` answer
# is compared with what happened.
#   node          a node that trains loses power        stopped     SIGSTOP for a rank
#   rank          SIGKILL for a rank                    torn_save   SIGKILL for a rank while it writes a checkpoint
#   agent         SIGKILL for an agent                  evict       a node is taken out on order (plain: refused)
#   leader        SIGKILL for the leader's process      pause       the run holds on order, and goes on (plain: refused)
#   batch_host    the batch host loses power            stop        the run is ended on order
#   time_limit    SIGUSR1 for the batch script          cancel      scancel; submitted again
#   preempt       SIGTERM for every process, the queue
# As root, with PyTorch as scripts/torch_env.sh finds or makes it: scripts/proof/torch_faults.sh BUILD [FAULT...]
# HOLDFAST_PROOF_PROGRAMS: "fsdp plain_fsdp", which of them. Ends with one line RESULT {json}.
set -uo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
(($#)) || { sed -n '3,14s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2; }
build=$(realpath "$1")
shift
faults=("$@")
(($#)) || faults=(node rank agent leader batch_host stopped torn_save evict pause stop time_limit cancel preempt)
# shellcheck source=scripts/torch_env.sh
source "$source/scripts/torch_env.sh"
set -- "$build/launcher/holdfast" "$build/src/train/holdfast-train" "$build/src/tools/cli/holdfast-tool"
pod_options=(--slurmd-timeout 30)
# shellcheck source=tests/support/torch_pod.sh
source "$source/tests/support/torch_pod.sh"
add_example "$source/examples/pytorch/fsdp.py"

steps=600 every=20
outside_s=60 # a program that ends on a busy machine is silent for seconds
# begin PROGRAM RUN: submits it; sets `run` and `job`.
begin() {
  program=$1
  run=runs/$2
  soon 240 all_idle_again || mini exec sinfo -N
  submit_it || { echo "Bail out! submit failed"; exit 1; }
}
submit_it() {
  job=$(mini exec --chdir /shared/home env "${shell[@]}" holdfast submit --command "python3 $program.py --dir ${run#runs/}.state --steps $steps --every $every" \
    -N 3 --spares 1 -J "${run#runs/}" --parsable --set cluster.ranks_per_node=1 --set supervise.hang_floor_s=30 --set "supervise.hang_outside_s=$outside_s")
}
state() { printf '%s' "$home/${run#runs/}.state"; }
has_saved_step() { [[ -n $(find "$(state)" -name .metadata | sed 's/.*step-0*\([0-9]*\)\/.*/\1/' | awk -v least="$1" '$1 >= least') ]]; }
speaks() { [[ $program != plain_* ]]; }
trains() { check "$run: it trains and saves" soon 240 has_saved_step 40; }
order() { check "$run: $1" mini exec holdfast ctl "/shared/home/$run" "$@"; }
refused() { # ORDER...: by a program that does not speak, with the reason
  local said code=0
  said=$(mini exec holdfast ctl "/shared/home/$run" "$@" 2>&1) || code=$?
  check "$run: $1 is refused" equal "$code" 2
  check "$run: it is said why" holds "$said" "does not report to its agents"
}
status_says() { check "$run: status says: $1" soon 30 status_has "$1"; }
status_has() { holds "$(mini exec holdfast status "/shared/home/$run")" "$1"; }
rank_of_program() { rank_process "^[^ ]*python3.* $program.py" "RANK=$1"; } # RANK
kill_rank() { kill "-$2" "$(rank_of_program "$1")"; }
ends_alike() { # ATTEMPTS: at least so many, and the undisturbed digest
  # The result of a job before this one is there until this one has its own.
  soon "$run_limit" has_result "done" || true
  ends_as "done" 0
  check "$run: the same bits" equal "$(said step) $(said digest)" "$steps $digest"
  check "$run: attempts" at_least "$(result "$run" '.attempts | length')" "$1"
}
has_result() { over "$run" && [[ $(result "$run" .status) == "$1" ]]; }
one_attempt() { check "$run: one attempt" equal "$(result "$run" '.attempts | length')" 1; }
another_attempt() { check "$run: another attempt" soon 180 has_attempts "${1:-2}"; }

fault_none() { ends_as "done" 0; }
fault_node() {
  trains
  broken=$(nth 2)
  mini kill-node "$broken"
  another_attempt
  ends_alike 2
  check "$run: the node is on record" holds "$(events "$run" | jq -r 'select(.event == "node_lost").node')" "$broken"
}
fault_rank() {
  trains
  check "$run: a rank is killed" kill_rank 1 KILL
  another_attempt
  ends_alike 2
}
fault_agent() {
  trains
  signal_agent KILL "$(nth 1)"
  ends_alike 1
  one_attempt
}
fault_leader() {
  trains
  signal_leader KILL
  ends_alike 1
  one_attempt
}
fault_batch_host() {
  trains
  broken=$(mini exec squeue -h -j "$job" -o %B)
  mini kill-node "$broken"
  # SLURM requeues a job whose batch host it has given up; on a release that ends it, a user submits it again.
  check "$run: the run is over or goes on" soon 240 over_or_again
  over "$run" || { job_gone "$job" && submit_it; }
  ends_alike 1
}
over_or_again() { over "$run" || has_attempts 2 || job_gone "$job"; }
fault_stopped() {
  trains
  speaks || sleep 12 # signs of life are learned
  check "$run: a rank is stopped" kill_rank 1 STOP
  another_attempt
  ends_alike 2
  check "$run: a hang" holds "$(events "$run" | jq -r 'select(.event == "attempt_ended").cause')" "rank hung"
  check "$run: of that rank" holds "$(events "$run" | jq -r 'select(.event == "attempt_ended").rank')" 1
}
fault_torn_save() {
  local try pid
  trains
  for try in 1 2 3 4 5; do
    pid=$(rank_of_program 1)
    for ((;;)); do
      [[ -z $(find "$(state)" -mindepth 1 -maxdepth 1 -type d '!' -exec test -e '{}/.metadata' ';' -print -quit) ]] || break
      kill -0 "$pid" 2>/dev/null || break
    done
    kill -KILL "$pid"
    another_attempt $((try + 1))
    [[ -z $(find "$(state)" -mindepth 1 -maxdepth 1 -type d '!' -exec test -e '{}/.metadata' ';' -print -quit) ]] || break
    sleep 8
  done
  echo "# $run: torn in try $try"
  ends_alike 2
}
fault_evict() {
  trains
  if speaks; then
    order evict "$(nth 2)"
    another_attempt
    ends_alike 2
    check "$run: no step is lost" equal "$(result "$run" '.attempts[0].lost_steps')" 0
  else
    refused evict "$(nth 2)"
    ends_alike 1
    one_attempt
  fi
}
fault_pause() {
  trains
  if speaks; then
    order save
    order pause
    check "$run: it holds" soon 60 holds_still
    status_says paused
    order resume
  else
    refused save
    refused pause
    status_says "reports no progress"
  fi
  ends_alike 1
  one_attempt
}
fault_stop() {
  trains
  order stop
  ends_as stopped 93
  one_attempt
  if speaks; then
    check "$run: the step at which it stopped is saved" equal "$(newest_durable)" "$(said step)"
  else
    check "$run: what it saved is not known" holds "$(result "$run" .why)" "not known"
  fi
}
queued_again() { [[ $(mini exec squeue -h -j "$job" -o %T) == PENDING ]]; }
second_job() { has_attempts 2 || { all_idle && sleep 2 && mini exec scontrol update "JobId=$job" StartTime=now; false; }; }
fault_time_limit() {
  trains
  mini exec scancel --batch --signal=USR1 "$job"
  check "$run: back in the queue" soon 120 queued_again
  check "$run: it starts again" soon 240 second_job
  ends_alike 2
  ! speaks || check "$run: no step is lost" equal "$(result "$run" '[.attempts[].lost_steps] | max')" 0
}
fault_cancel() {
  trains
  mini exec scancel "$job"
  ends_as drained 75
  soon 240 all_idle_again
  submit_it
  ends_alike 2
}
fault_preempt() {
  trains
  mini exec scancel --full --signal=TERM "$job"
  sleep 1
  mini exec scontrol requeue "$job"
  check "$run: it starts again" soon 240 second_job
  ends_alike 2
}

read -r -a programs_to_prove <<<"${HOLDFAST_PROOF_PROGRAMS:-fsdp plain_fsdp}"
rows=()
broken=''
begin fsdp undisturbed
ends_as "done" 0
digest=$(said digest)
echo "# digest $digest after $steps steps"
for fault in "${faults[@]}"; do
  for each in "${programs_to_prove[@]}"; do
    failed_before=$failed
    [[ $fault != stopped ]] || outside_s=5
    begin "$each" "${fault}_$each"
    outside_s=60
    "fault_$fault"
    show_failure
    [[ -z $broken ]] || mini revive-node "$broken"
    broken=''
    rows+=("$(jq -cn --arg fault "$fault" --arg program "$each" --argjson ok "$((failed == failed_before))" \
      --argjson attempts "$(attempts)" '{$fault, $program, ok: ($ok == 1), $attempts}')")
    echo "# ${rows[-1]}"
  done
done
echo "1..$count"
jq -cnr --argjson failed "$failed" --argjson checks "$count" --arg digest "$digest" \
  '"RESULT " + ({proof: "torch_faults", $checks, $failed, $digest, rows: $ARGS.positional} | tostring)' --jsonargs "${rows[@]}"
exit $((failed > 0))
