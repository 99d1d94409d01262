# Sourced by the tests and benchmarks that run Holdfast on a minipod of their own. Before: set `source` to the project's
# folder and HOLDFAST_MINIPOD_DIR to the minipod's.
# shellcheck shell=bash disable=SC2154 # source
pod=$source/scripts/minipod
dir=$HOLDFAST_MINIPOD_DIR
home=$dir/shared/home # /shared/home for the cluster

mini() { timeout 120 "$pod" "$@"; }

# install_programs HOLDFAST TRAIN TOOL: into the PATH of the cluster's user. HOLDFAST_TEST_BUNDLE, an archive of scripts/bundle.sh,
# takes their place on a cluster whose system (`minipod up --root`) has not got their libraries.
install_programs() {
  if [[ -n ${HOLDFAST_TEST_BUNDLE-} ]]; then
    tar -xzf "$HOLDFAST_TEST_BUNDLE" -C "$dir/shared/opt"
    return
  fi
  local bin=$dir/shared/opt/holdfast/bin share=$dir/shared/opt/holdfast/share/holdfast
  mkdir -p "$bin" "$share/python"
  install -s -m 0755 "$@" "$(dirname "$1")/holdfast-pmix" "$bin/"
  cp -r "$source/configs" "$share/"
  cp -r "$source/client/python/holdfast" "$share/python/"
}

# make_tokens: /shared/home/tokens.bin from the licence texts of every Debian.
make_tokens() {
  cat /usr/share/common-licenses/{GPL-3,GPL-2,LGPL-2.1,Apache-2.0} >"$home/text.txt"
  chown 61000 "$home/text.txt"
  mini exec holdfast data prepare --input /shared/home/text.txt --output /shared/home/tokens.bin --train-vocabulary 512 >/dev/null
}

# The job of the tests. HOLDFAST_TEST_FAST=1: with steps fifteen times as fast, to test that no test depends on slow ones.
# HOLDFAST_TEST_STEPS: how many.
test_steps=${HOLDFAST_TEST_STEPS:-200}
test_model=$source/tests/fault/model.toml test_sets=(--set "train.steps=$test_steps")
if [[ -n ${HOLDFAST_TEST_FAST-} ]]; then
  test_model=$source/tests/fault/fast_model.toml test_sets+=(--set train.sequence=16)
fi
copy_job() {
  cp "$source/tests/fault/job.toml" "$home/job.toml"
  cp "$test_model" "$home/model.toml"
  chown 61000 "$home/"{job,model}.toml
}
# submit RUN ARGUMENT...: a run in /shared/home/RUN; prints the job id. `submit_env`: words NAME=VALUE for its environment.
submit() {
  local name=$1
  shift
  copy_job
  mini exec --chdir /shared/home env ${submit_env[@]+"${submit_env[@]}"} holdfast submit job.toml --parsable --set data.tokens=/shared/home/tokens.bin \
    --set "run.dir=/shared/home/$name" --set "run.name=$name" "${test_sets[@]}" "$@"
}

# A job must last as long as its test needs it, on the fastest machine, too: never depend on the time of its steps.
#   job=$(submit_held RUN ARGUMENT...)   from its first step on, no step takes less than 0.2 s and the last one is not taken
#   ... look at it, break it ...         every attempt trains, slowly; the bits are what they would have been
#   let_go RUN                           it trains to its end at full speed
# (src/train/loop/step_hold.hpp; the run has drill.allowed.) A job whose bits nobody compares can have train.steps=1000000 and
# be ended by `holdfast ctl RUN stop`.
submit_held() { submit "$@" --set drill.allowed=true && hold "$1"; }
# hold RUN [LEAST_STEP_S]: 900 s at most.
hold() { (umask 022; echo "${2-0.2} 900" >"$home/$1/hold.new") && mv "$home/$1/hold.new" "$home/$1/hold"; }
let_go() { rm -f "$home/$1/hold"; }

events() { cat "$home/$1"/events/*.jsonl 2>/dev/null | jq -cR 'fromjson? // empty'; }
result() { jq -r "$2" "$home/$1/result.json"; }
over() { [[ -s $home/$1/result.json ]]; }
# rank_process PROGRAM NAME=VALUE...: the first process of this machine, nodes of the minipod included, whose command line
# matches PROGRAM, and whose environment has a line that matches each of the others.
rank_process() {
  local pid line
  for pid in $(pgrep -f "$1"); do
    for line in "${@:2}"; do
      grep -qzxE "$line" "/proc/$pid/environ" 2>/dev/null || continue 2
    done
    echo "$pid"
    return
  done
  return 1
}
last_step() { tail -n 1 "$home/$1/metrics.jsonl" 2>/dev/null | jq -r '.step // 0' 2>/dev/null || echo 0; }
step_reached() { (("$(last_step "$1" | head -n 1)" >= $2)); }
durable() { (("$(events "$1" | jq -s 'map(select(.event == "checkpoint_durable").step) | max // -1')" >= $2)); }
placement() { events "$1" | jq -rs 'map(select(.event == "attempt_planned")) | last.placement[]'; }
leader_of() { events "$1" | jq -rs 'map(select(.event == "leader_elected")) | last.node'; }
leader_pid() { events "$1" | jq -rs 'map(select(.event == "leader_elected")) | last.pid'; }
# training RUN ATTEMPT: that attempt has made a new step.
training() { [[ $(events "$1" | jq -rs --argjson a "$2" 'map(select(.event == "first_step" and .attempt >= $a)) | length') -gt 0 ]]; }
all_idle() { [[ $(mini exec sinfo -h -o %t | sort -u) == idle ]]; }
# Its nodes may still be completing: a killed one cannot answer.
job_gone() { [[ -z $(mini exec squeue -h -j "$1" -t RUNNING,PENDING -o %T 2>/dev/null) ]]; }
# slurmctld saves its state every 5 s; what it has not saved is lost when it is killed, a job's id and start too.
# slurm_saved_since FILE: it has saved it since that file was written.
slurm_saved_since() { [[ $dir/slurmctld/state/job_state -nt $1 ]]; }
# The newest log lines and events of a run, for the output of a test that failed: first what its agents say.
show_record() {
  tail -n 12 "$home/$1"/logs/agent-*.log 2>/dev/null | cut -c1-300
  tail -n 5 "$home/$1"/logs/job-*.log "$home/$1"/logs/attempt-*/*.log 2>/dev/null | tail -n 40 | cut -c1-300
  events "$1" | jq -c 'select(.event | test("checkpoint") | not)' | cut -c1-300 | tail -n 20
}
# The same as comments of TAP, when a check has failed since the last call.
show_failure() { ((failed == before_failed)) || { show_record "$run" | sed 's/^/# /'; before_failed=$failed; }; }
before_failed=0
