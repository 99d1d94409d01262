#!/usr/bin/env bash
# shellcheck disable=SC2317,SC2119 # check and soon call most functions
# Runs that are ordered to end, and runs that cannot continue.
# ends_test.sh HOLDFAST TRAIN TOOL [CASE...]; see tests/support/fault.sh.
set -uo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/support/fault.sh
source "$source/tests/support/fault.sh"

all_cases=(drained array_task requeued failed_before script_lost crash_loop cannot_start user_error)

case_drained() {
  # The time limit is near: the state is saved, and the next job of the run continues from it. SLURM's variables in the shell
  # that would change the job do not reach it.
  local submit_env=(SBATCH_NO_REQUEUE=1 SBATCH_MEM_PER_NODE=100M)
  start_held drained --set checkpoint.every=0
  check "$run: all memory of its nodes" holds "$(mini exec scontrol show job "$job")" MinMemoryNode=0
  trains_to 10
  mini exec scancel --batch --signal=USR1 "$job"
  check "$run: is over" soon 120 over "$run"
  check "$run: drained" equal "$(result "$run" .status)" drained
  check "$run: exit code 75" equal "$(result "$run" .exit_code)" 75
  check "nothing newer than its last checkpoint" equal "$(result "$run" .durable_step)" "$(result "$run" '.attempts[0].last_step')"
  check "back in the queue" soon 60 queued
  check "the next job trains" soon 240 trains_again
  # A chain: one job waits for this one, another for all of the run.
  check "$run: a job that would not wait is refused" refused_as "belongs to job $job" behind
  local second third
  second=$(behind "--dependency=afterany:$job") third=$(behind --dependency=singleton)
  # Cancelled: SLURM signals every process of the job. The same, but the job is not requeued: the next one of the chain continues.
  rm "$home/$run/result.json"
  mini exec scancel "$job"
  check "$run: is over again" soon 120 over "$run"
  check "$run: drained again" equal "$(result "$run" .status)" drained
  check "$run: the reason" equal "$(drains .reason | tail -n 1)" SIGTERM
  check "$run: has left the queue" soon 60 job_gone "$job"
  rm "$home/$run/result.json"
  job=$second
  max_lost=0 ends_like_the_undisturbed 2
  job=$third
  check "$run: the last job of the chain ends" soon 60 job_gone "$third"
  check "$run: because nothing is left to do" holds "$(cat "$home/$run/logs/job-$third.log")" \
    "the run has ended in job $second: done; nothing is left for job $third"
  check "$run: with the run's exit code" holds "$(mini exec scontrol show job "$third")" "JobState=COMPLETED"
  echo "# $run: $(result "$run" '.attempts | length') attempts (3 where SLURM's signal reaches the guardians alone)"
  every_step_once
}
# behind [OPTION...]: submits the same run again; prints the job.
behind() { submit "$run" --set checkpoint.every=0 --set drill.allowed=true -- "$@"; }
# refused_as WORDS COMMAND...: it ends with 2, and says so.
refused_as() {
  local want=$1 status=0 said
  said=$("${@:2}" 2>&1) || status=$?
  equal "$status" 2 && holds "$said" "$want"
}
queued() { [[ $(mini exec squeue -h -j "$job" -o %T) == PENDING ]]; }

case_array_task() {
  # The time limit of one task of an array is near, the one whose number is the array's: it alone goes back into the queue.
  soon 180 all_idle
  cat >"$home/sweep.sh" <<'END'
#!/bin/bash
#SBATCH --nodes=1 --exclusive --no-kill --requeue --signal=B:USR1@60 --array=1-2 --output=/shared/home/sweep-%a.log
exec holdfast run -N 1 --spares 0 --set cluster.ranks_per_node=1 --set rank.kind=sigterm --set "run.dir=sweep_$SLURM_ARRAY_TASK_ID" -- sh task.sh
END
  cat >"$home/task.sh" <<'END'
echo "job $SLURM_JOB_ID of $SLURM_ARRAY_JOB_ID"
trap "exit 0" TERM
while sleep 0.1; do :; done
END
  local array last other
  array=$(mini exec --chdir /shared/home sbatch --parsable sweep.sh)
  for run in sweep_1 sweep_2; do check "$run: runs" soon 60 says_its_job "$run" "$array"; done
  last=$(mini exec squeue -h -j "$array" -o '%A %K' | sed -n "s/^$array //p")
  mini exec scancel --batch --signal=USR1 "${array}_$last"
  other=$((3 - last))
  check "task $last is back in the queue, and the other one runs" soon 60 tasks_are "$array" "$last PENDING" "$other RUNNING"
  check "the run of the other one had one attempt" equal "$(events "sweep_$other" | grep -c attempt_planned)" 1
  check "and was not told to end" equal "$(events "sweep_$other" | grep -c '"drain"')" 0
  # A second job of its run begins at once, since it waits for a job of another name. It goes back, behind the task.
  job=$(mini exec --chdir /shared/home holdfast submit --parsable --command 'sh task.sh' -N 1 --spares 0 --set cluster.ranks_per_node=1 \
    --set rank.kind=sigterm --set "run.dir=sweep_$other" -- --dependency=singleton)
  check "a second job of its run waits for it" soon 60 waits_for "$job" "afterany:${array}_$other"
  mini exec scancel "$array" "$job"
}
waits_for() { holds "$(mini exec squeue -h -j "$1" -o %E)" "$2"; }
says_its_job() { grep -q "job [0-9]* of $2" "$home/$1/logs/attempt-0001/rank-00000.log"; }
tasks_are() {
  local now
  now=$(mini exec squeue -h -j "$1" -o '%K %T')
  holds "$now" "$2" && holds "$now" "$3"
}

# loses NODE: the run has no spare and ends without this node; the requeued job excludes it.
loses() {
  mini kill-node "$1"
  check "$run: is over" soon 60 over "$run"
  check "$run: exit code 75" equal "$(result "$run" .exit_code)" 75
  check "$run: back in the queue, without $1" soon 30 excludes "$1"
}
excludes() { equal "$(mini exec scontrol show job "$job" | sed -n 's/.* ExcNodeList=\([^ ]*\).*/\1/p')" "$1"; }

case_requeued() {
  # A node is lost, and there is no spare: the next job of the run continues on other nodes.
  start requeued --set cluster.spares=0 --set train.steps=1000000
  mid_run 20
  local lost
  lost=$(nth 2)
  loses "$lost"
  mini revive-node "$lost"
  # The first job may have saved in a second attempt.
  check "$run: the next job trains" soon 240 trains_again "$(($(events "$run" | grep -c '"attempt_planned"') + 1))"
  check "$run: not on $lost" equal "$(placement "$run" | grep -c "$lost")" 0
  check "$run: $lost may come back after a day" equal "$(jq -rc '.nodes | keys' "$home/$run/excluded.json")" "[\"$lost\"]"
  mini exec scancel "$job"
  check "$run: has left the queue" soon 60 job_gone "$job"
}

case_failed_before() {
  # A node is lost, and ends the run, which has no spare. The next job of the run has spares, and the node again: it is one of
  # them now, and the other slot keeps its node.
  start_held failed_before --set cluster.spares=0 --set supervise.when_short=stop
  mid_run 10
  local first lost
  first=$(nth 1) lost=$(nth 2)
  mini kill-node "$lost"
  check "$run: is over" soon 60 over "$run"
  check "$run: exit code 5" equal "$(result "$run" .exit_code)" 5
  mini revive-node "$lost"
  check "$run: has left the queue" soon 60 job_gone "$job"
  rm "$home/$run/result.json"
  soon 180 all_idle
  job=$(submit_held failed_before)
  check "$run: the next job trains" soon 120 training "$run" 2
  check "$run: it has $lost again" holds "$(jq -r '.nodes[].name' "$home/$run/nodes.json")" "$lost"
  check "$run: as a spare" equal "$(placement "$run" | grep -c "$lost")" 0
  check "$run: $first keeps its slot" equal "$(nth 1)" "$first"
  check "$run: status says why" holds "$(mini exec holdfast status "/shared/home/$run")" "record      $lost lost"
  max_lost=30 ends_like_the_undisturbed
}

case_script_lost() {
  # The node of the batch script is lost: the leader requeues the job. SLURM is slow, so that its signal reaches an agent
  # that has nothing else to do.
  mkdir "$home/slow_tools"
  cat >"$home/slow_tools/scontrol" <<'END'
#!/bin/bash
case $* in requeue*) sleep 3 ;; *ExcNodeList=*) sleep 1 ;; esac
PATH=${PATH#*:} exec scontrol "$@"
END
  chmod 755 "$home/slow_tools/scontrol"
  local tool submit_env=(PATH=/shared/home/slow_tools:/shared/opt/holdfast/bin:/usr/local/bin:/usr/bin:/bin)
  for tool in squeue srun sinfo scancel sbatch; do
    ln -s "$(mini exec bash -c "command -v $tool")" "$home/slow_tools/$tool"
  done
  start script_lost --set cluster.spares=0 --set train.steps=1000000
  mid_run 20
  local lost
  lost=$(mini exec squeue -h -j "$job" -o %B)
  loses "$lost"
  mini exec scancel "$job"
  mini revive-node "$lost"
}

case_crash_loop() {
  start crash_loop --set 'rank.command=["sh", "-c", "sleep 0.2; exit 9"]'
  ends_as failed 93
  check "three attempts, no more" equal "$(result "$run" '.attempts | length')" 3
}

case_cannot_start() {
  # The program exists, but its interpreter does not: an error of the program, one of MPI, too.
  printf '#!/no/such/interpreter\n' >"$home/broken"
  chmod 755 "$home/broken"
  start cannot_start --set rank.launch=mpi --set 'rank.command=["/shared/home/broken"]'
  ends_as failed 93
  check "the reason is told" holds "$(result "$run" .why)" "cannot start /shared/home/broken: its interpreter is /no/such/interpreter"
}

case_user_error() {
  # `submit` cannot find this without reading all data: tokens outside the vocabulary.
  local bytes
  bytes=$(stat -c %s "$home/tokens.bin")
  cp "$home/tokens.bin" "$home/damaged.bin"
  head -c $(((bytes - 8192) / 4096 * 4096)) /dev/zero | tr '\0' '\377' |
    dd of="$home/damaged.bin" bs=4096 seek=1 conv=notrunc status=none
  chown 61000 "$home/damaged.bin"
  start user_error --set data.tokens=/shared/home/damaged.bin
  ends_as failed 2
  check "one attempt" equal "$(result "$run" '.attempts | length')" 1
  check "the reason is told" holds "$(result "$run" .why)" "token"
  check "a time limit that leaves no time to train is refused" refused_as "leaves no time to train" submit too_short -t 1
}

run_cases "$@"
