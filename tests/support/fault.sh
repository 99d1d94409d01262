# Sourced by the tests in tests/fault: a minipod of four nodes, an undisturbed run, and common functions. The promise, on
# real SLURM, Open MPI and HDF5: a job that loses nodes, ranks or its leader ends in the same bits as one that lost nothing,
# and it really restored a checkpoint. Before: set `source` to the project's folder. After: set `all_cases`, define
# case_NAME for each, and call run_cases with the script's arguments: HOLDFAST TRAIN TOOL [CASE...]. `pod_options`, set
# before, and the words of HOLDFAST_TEST_POD are for `minipod up`; so are functions pod_begin and pod_end, called before it and after `minipod down`.
# Speaks TAP; exits 77 where there is no SLURM to test with.
# shellcheck shell=bash disable=SC2154 # source, all_cases
# shellcheck source=tests/support/tap.sh
source "$source/tests/support/tap.sh"
need_cluster "$@"
programs=("$(realpath "$1")" "$(realpath "$2")" "$(realpath "$3")")

HOLDFAST_MINIPOD_DIR=$(mktemp -d /var/tmp/hf-fault.XXXXXX)
export HOLDFAST_MINIPOD_DIR
# shellcheck source=tests/support/pod.sh
source "$source/tests/support/pod.sh"
trap '"$pod" down 2>/dev/null; ! declare -F pod_end >/dev/null || pod_end; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP

! declare -F pod_begin >/dev/null || pod_begin
# shellcheck disable=SC2086 # words
mini up --nodes 4 ${pod_options[@]+"${pod_options[@]}"} ${HOLDFAST_TEST_POD-} || { echo "Bail out! no minipod"; exit 1; }
install_programs "${programs[@]}"
make_tokens || { echo "Bail out! no tokens"; exit 1; }

run_limit=240 # seconds until a run must be over, on the slowest machine
# start NAME ARGUMENT...: submits once every node is free; sets `run` and `job`.
start() { start_by submit "$@"; }
# The same for a case that needs the run while it trains: it is held (tests/support/pod.sh) until `let_go
# "$run"`, or until ends_as waits for its end.
start_held() { start_by submit_held "$@"; }
start_by() {
  run=$2
  soon 180 all_idle || mini exec sinfo -N
  job=$("$@") || { echo "Bail out! submit failed"; exit 1; }
}
on() { local node=$1; shift; mini exec --root --node "$node" --chdir / "$@"; }
nth() { placement "$run" | sed -n "$1p"; }
agent_of() { on "$1" pgrep -f '^[^ ]*holdfast agent .*--serve'; }

# ends_as STATUS EXIT_CODE: waits for the end of the run; releases it first, if it was held.
ends_as() {
  let_go "$run"
  check "$run: the run is over" soon "$run_limit" over "$run"
  check "$run: status $1" equal "$(result "$run" .status)" "$1"
  check "$run: exit code $2" equal "$(result "$run" .exit_code)" "$2"
  check "$run: the job leaves the queue" soon 60 job_gone "$job"
}
# ends_like_the_undisturbed [RESTORES]: the same bits, and at least RESTORES (1) attempts restored a checkpoint.
ends_like_the_undisturbed() {
  ends_as "done" 0
  check "$run: the same bits" equal "$(result "$run" .state_digest)" "$undisturbed"
  check "$run: the same loss" equal "$(result "$run" .final_loss)" "$undisturbed_loss"
  local restored
  restored=$(result "$run" '[.attempts[] | select(.restored_from != null and .restored_from.step > 0)] | length')
  check "$run: state was really restored" at_least "$restored" "${1-1}"
  local largest
  largest=$(result "$run" '[.attempts[].lost_steps] | max')
  check "$run: no attempt lost more than ${max_lost-1} steps" at_least "${max_lost-1}" "$largest"
  nothing_stays
}
# Agents that were ordered to end do so within moments; those of lost nodes cannot.
nothing_stays() {
  local node
  for node in $(placement "$run"); do
    check "$run: nothing stays in the memory of $node" soon 60 nothing_stays_on "$node"
    on "$node" find /dev/shm -name 'holdfast-*' -exec find {} + | sed 's/^/# /'
  done
}
nothing_stays_on() { [[ -z $(on "$1" find /dev/shm -name 'holdfast-*' -o -name 'vader_segment.*' -o -name 'sm_segment.*') ]]; }
# came_back_from ATTEMPT LEVEL: that attempt (from 1) restored its state from LEVEL.
came_back_from() {
  check "$run: attempt $1 restored from level $2" equal "$(result "$run" ".attempts[$1 - 1].restored_from.level")" "$2"
}

# Signals for processes of a run:
#   signal_agent SIGNAL NODE                    the worker process of the agent; the guardian starts another one
#   signal_leader SIGNAL                        the agent that leads
#   signal_rank SIGNAL NODE [RANK [PROGRAM]]    that rank, or one of the node's, of our trainer or of another program. The
#                                               trainer's probe of the node's arithmetic is the same program, and no rank
signal_agent() { on "$2" kill "-$1" "$(agent_of "$2")"; }
signal_leader() { on "$(leader_of "$run")" kill "-$1" "$(leader_pid "$run")"; }
signal_rank() {
  # shellcheck disable=SC2016 # for the node's shell
  on "$2" bash -c "$(declare -f rank_process)"'; pid=$(rank_process "$1" "HOLDFAST_RANK=$2") && kill "-$0" "$pid"' \
    "$1" "${4-^[^ ]*holdfast-train}" "${3-[0-9]+}"
}
trains_to() { check "$run: reaches step $1" soon "$run_limit" step_reached "$run" "$1"; }
mid_run() { # STEP: a durable checkpoint and that many steps
  trains_to "$1"
  check "$run: has a durable checkpoint" soon 60 durable "$run" 10
}

# SLURM delays a requeued job by two minutes, refuses to change that while its nodes remember the job, and delays it anew
# when they have forgotten it. A job that starts while they still end its last start is lost (its credentials are revoked).
# trains_again [ATTEMPT]: the next job of the run does, in that attempt (2).
trains_again() { training "$run" "${1-2}" || { all_idle && sleep 2 && mini exec scontrol update "JobId=$job" StartTime=now; false; }; }

every_step_once() {
  check "$run: metrics: one line per step" \
    equal "$(jq -s --argjson n "$test_steps" '[.[].step] == [range(1; $n + 1)]' "$home/$run/metrics.jsonl")" true
}

undisturbed_run() {
  start undisturbed
  ends_as "done" 0
  undisturbed=$(result undisturbed .state_digest)
  undisturbed_loss=$(result undisturbed .final_loss)
  echo "# state digest $undisturbed"
  check "the undisturbed run needed one attempt" equal "$(result undisturbed '.attempts | length')" 1
  check "its checkpoints are sound" mini exec holdfast ckpt verify /shared/home/undisturbed
  every_step_once
}

# drains FIELD: of each order to drain, in order.
drains() { events "$run" | jq -rs "map(select(.event == \"drain\"))[] | $1"; }

# Of every run of this test: the parts of its time add up to the time from its first event to its last, within 1 %; of one
# that is not over, up to its last step. Leaders here have one clock.
accounts_add_up() {
  local events run_dir
  while read -r events; do
    run_dir=${events%/events}
    check "${run_dir##*/}: its time account adds up" adds_up "/shared/home/${run_dir#"$home"/}"
  done < <(find "$home" -maxdepth 4 -type d -name events)
}
adds_up() {
  local account took
  account=$(mini exec holdfast status "$1" --json) && took=$(mini exec holdfast events "$1" | jq -s '(last.unix - first.unix)?') || return
  jq -e --argjson took "${took:-0}" '([.time_s[]] | add) as $spent | ($spent - .wall_s | fabs) <= 0.01 * .wall_s and
    (if .exit_code != null then (.wall_s - $took | fabs) <= 0.01 * $took else .wall_s >= 0.99 * $took end)' <<<"$account" ||
    { jq -c '{time_s, wall_s, exit_code}' <<<"$account"; echo "its events took $took s"; false; }
}

# run_cases HOLDFAST TRAIN TOOL [CASE...]: the undisturbed run, then the cases named, or all.
run_cases() {
  undisturbed_run
  run_alone "$@"
}

# run_alone HOLDFAST TRAIN TOOL [CASE...]: the same where no case compares with an undisturbed run.
run_alone() {
  shift 3
  (($#)) || set -- "${all_cases[@]}"
  local name
  for name; do
    "case_$name"
    show_failure
  done
  accounts_add_up
  conclude
}
