#!/usr/bin/env bash
# shellcheck disable=SC2317,SC2119 # check and soon call most functions
# Jobs whose ranks are another program, which does not connect to its agent: crashes, the end, orders, lost agents.
# programs_test.sh HOLDFAST TRAIN TOOL [CASE...]; see tests/support/fault.sh.
set -uo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/support/fault.sh
source "$source/tests/support/fault.sh"

all_cases=(any_program no_job_file crashes gpu_bug away background hangs warm stop cancel limit agent_killed escapes)

case_any_program() {
  # The program has torch's environment variables; a killed node is replaced as usual.
  # shellcheck disable=SC2016 # for the rank's shell
  start any_program --set 'rank.command=["sh", "-c", "echo rank $RANK of $WORLD_SIZE local $LOCAL_RANK attempt $HOLDFAST_ATTEMPT; until [ -e /shared/home/enough ]; do sleep 0.2; done"]'
  check "ranks are up" soon 60 ranks_up 1
  local node
  node=$(nth 2)
  mini kill-node "$node"
  check "and up again" soon 120 ranks_up 2
  touch "$home/enough"
  ends_as "done" 0
  check "two attempts" equal "$(result "$run" '.attempts | length')" 2
  check "the environment" equal "$(cat "$home/$run/logs/attempt-0002/rank-00003.log")" "rank 3 of 4 local 1 attempt 2"
  mini revive-node "$node"
}
# ranks_up ATTEMPT
ranks_up() { events "$run" | jq -es --argjson a "$1" 'any(.event == "placement_verified" and .attempt == $a)'; }

case_no_job_file() {
  # Nothing but a command: submitted, with flags of sbatch and a node that is lost, and in an allocation of one's own.
  # shellcheck disable=SC2016 # for the rank's shell
  local rank='echo "rank $RANK of $WORLD_SIZE, node $GROUP_RANK, restart $TORCHELASTIC_RESTART_COUNT in $PWD"' node
  soon 180 all_idle
  mkdir -p "$home/work"
  chown 61000 "$home/work"
  echo "$rank"'; until [ -e /shared/home/work/enough ]; do sleep 0.2; done' >"$home/work/train.sh"
  run=work/runs/bash
  # The command is a launcher, and SLURM's is refused.
  job=$(mini exec --chdir /shared/home/work holdfast submit --command 'torchrun --nnodes=2 --nproc-per-node=2 --rdzv-backend=c10d --no-python bash train.sh' --spares 1 \
    --parsable -- --comment='without a file' 2>"$dir/said")
  check "it is said that torchrun is not started" holds "$(cat "$dir/said")" "Holdfast takes the place of torchrun: 2 ranks on each of 2 nodes run bash train.sh"
  local code=0
  mini exec --chdir /shared/home/work holdfast submit --command 'srun -n1 python3 train.py' -N 2 --dry-run 2>"$dir/said" || code=$?
  check "srun is refused" equal "$code" 2
  check "and it is said what to write" holds "$(cat "$dir/said")" "--command 'python3 train.py'"
  check "$run: ranks are up" soon 60 ranks_up 1
  check "$run: the job has sbatch's flag" equal "$(mini exec squeue -h -j "$job" -o %k)" "without a file"
  node=$(nth 2)
  mini kill-node "$node"
  check "$run: and up again" soon 120 ranks_up 2
  touch "$home/work/enough"
  ends_as "done" 0
  check "$run: the rank's words" equal "$(cat "$home/$run/logs/attempt-0002/rank-00003.log")" "rank 3 of 4, node 1, restart 1 in /shared/home/work"
  mini revive-node "$node"
  soon 180 all_idle
  check "in an allocation" mini exec --chdir /shared/home/work salloc --quiet -N 3 --exclusive --no-kill \
    holdfast run --spares 1 --set cluster.ranks_per_node=1 -- bash -c "$rank"
  check "its run is another one" equal "$(cat "$home/work/runs/bash-2/logs/attempt-0001/rank-00001.log")" "rank 1 of 2, node 1, restart 0 in /shared/home/work"
}

case_crashes() {
  # The program saves its progress, which the agent cannot see, and crashes thirty times.
  cat >"$home/crashes.sh" <<'END'
n=$(cat "$HOLDFAST_RUN_DIR/saved" || echo 0)
echo $((n + 1)) >"$HOLDFAST_RUN_DIR/saved"
sleep 1.5
[ "$n" -ge 30 ] || exit 9
END
  start crashes --set 'rank.command=["sh", "/shared/home/crashes.sh"]' --set supervise.assumed_progress_s=1 \
    --set cluster.nodes=1 --set cluster.spares=0 --set cluster.ranks_per_node=1
  ends_as "done" 0
  check "attempts" equal "$(result "$run" '.attempts | length')" 31
  check "how far they came is not known" equal "$(result "$run" '.attempts[0].last_step')" null
}

case_away() {
  # What the program had is away for some seconds when it starts again: its folder, then its script (Python ends with 2).
  mkdir -p "$home/moved/code"
  printf '#!/bin/sh\nexec python3 prog.py\n' >"$home/moved/train"
  printf 'import os, time\nwhile not os.path.exists("/shared/home/moved/enough"): time.sleep(0.1)\n' >"$home/moved/code/prog.py"
  chmod 755 "$home/moved/train"
  rm -f "$home/moved/enough"
  start away --set 'rank.command=["/shared/home/moved/train"]' --set rank.directory=/shared/home/moved/code --set supervise.assumed_progress_s=1 \
    --set cluster.nodes=1 --set cluster.spares=0 --set cluster.ranks_per_node=1
  check "the rank is up" soon 60 ranks_up 1
  sleep 1.5
  mv "$home/moved/code" "$home/moved/code.away"
  on "$(nth 1)" pkill -KILL -f 'python3 prog.py'
  check "the folder is named" soon 30 event_has attempt_ended "cannot enter the working directory /shared/home/moved/code"
  check "and named again" soon 30 ended 4
  mv "$home/moved/code.away" "$home/moved/code"
  check "the rank is up again" soon 30 runs_again prog.py
  sleep 1.5
  mv "$home/moved/code/prog.py" "$home/moved/code/prog.away"
  on "$(nth 1)" pkill -KILL -f 'python3 prog.py'
  check "the script is named" soon 30 event_has attempt_ended "can't open file"
  check "its exit code is the program's" soon 30 event_has rank_exited '"status":2'
  mv "$home/moved/code/prog.away" "$home/moved/code/prog.py"
  check "the rank is up once more" soon 30 runs_again prog.py
  touch "$home/moved/enough"
  ends_as "done" 0
}
# ended COUNT: so many attempts have.
ended() { (($(events "$run" | grep -c '"event":"attempt_ended"') >= $1)); }
runs_again() { on "$(nth 1)" pgrep -f "python3 $1"; }

case_background() {
  # The script puts the training into the background and ends with 0.
  printf 'import time\nwhile True: time.sleep(0.2)\n' >"$home/trains.py"
  printf 'nohup python3 /shared/home/trains.py &\necho started\n' >"$home/background.sh"
  start background --set 'rank.command=["sh", "/shared/home/background.sh"]' --set cluster.nodes=1 --set cluster.spares=0 --set cluster.ranks_per_node=1
  ends_as failed 93
  check "it is said what went on" holds "$(result "$run" .why)" "ended with exit code 0: processes that it had started went on after its end: python3 ("
  check "and what to write" holds "$(result "$run" '.attempts[0].advice')" "exec"
  check "in one attempt" equal "$(result "$run" '.attempts | length')" 1
}

case_gpu_bug() {
  # The same page fault of its GPU ends rank 0 in every attempt. It is the program's, and no node leaves for it.
  mkdir -p "$home/signs"
  chown 61000 "$home/signs"
  cat >"$home/gpu_bug.sh" <<'END'
[ "$RANK" = 0 ] || exec sleep 600
echo '{"kind":"xid","code":31,"text":"NVRM: Xid (PCI:0000:3b:00): 31, pid=7, MMU Fault"}' >>"/shared/home/signs/$HOLDFAST_NODE"
sleep 1.5
exit 1
END
  local submit_env=HOLDFAST_SIGNS=/shared/home/signs/%N
  start gpu_bug --set drill.allowed=true --set 'rank.command=["sh", "/shared/home/gpu_bug.sh"]'
  ends_as failed 93
  check "$run: three attempts" equal "$(result "$run" '.attempts | length')" 3
  check "$run: by the Xid of rank 0, and the program's" equal \
    "$(events "$run" | jq -rs 'map(select(.event == "attempt_ended") | "\(.kind) \(.xid) \(.xid_rank)") | unique | join(", ")')" "program 31 0"
  check "$run: on the same nodes" equal "$(result "$run" '[.attempts[].placement] | unique | length')" 1
  check "$run: no node is in doubt" equal "$(events "$run" | grep -cE 'node_evicted|eviction_ordered|node_suspected')" 0
}

case_hangs() {
  # The program says nothing, to nobody; its ranks spin while they wait for each other.
  cat >"$home/spins.py" <<'END'
import os, socket, sys, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
at = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
size = 1 << 18
def take(link):
    got = b""
    while len(got) < size:
        try:
            part = link.recv(size - len(got), socket.MSG_DONTWAIT)
        except BlockingIOError:
            continue  # as a collective waits
        if not part:
            sys.exit(9)
        got += part
    return got
if rank == 0:
    server = socket.create_server(at)
    links = [server.accept()[0] for _ in range(world - 1)]
else:
    for _ in range(200):
        try:
            links = [socket.create_connection(at)]
            break
        except OSError:
            time.sleep(0.1)
while True:
    time.sleep(0.2)
    if rank == 0:
        for link in links: take(link)
        word = (b"1" if os.path.exists("/shared/home/spun") else b"0") * size
        for link in links: link.sendall(word)
    else:
        links[0].sendall(b"x" * size)
        word = take(links[0])
    if word[:1] == b"1":
        break
END
  rm -f "$home/spun"
  start hangs --set 'rank.command=["python3", "/shared/home/spins.py"]' --set supervise.hang_outside_s=3
  check "ranks are up" soon 60 ranks_up 1
  check "signs of life are known" soon 60 event_has pace outside
  check "nothing was taken for a hang" equal "$(events "$run" | grep -c attempt_planned)" 1
  check "a rank is stopped" signal_rank STOP "$(nth 2)" 3 '^[^ ]*python3 .*spins\.py'
  check "and up again" soon 90 ranks_up 2
  touch "$home/spun"
  ends_as "done" 0
  check "two attempts" equal "$(result "$run" '.attempts | length')" 2
  check "the cause" equal "$(result "$run" '.attempts[0].cause')" "rank hung"
  check "the rank that was stopped is named" holds "$(events "$run" | grep attempt_ended)" "a process of rank 3 is stopped"
}

case_warm() {
  # Interpreters wait with a module imported, on active nodes and spares, and become ranks.
  mkdir -p "$home/modules"
  # Its child, which compilers of torch have, too, shows the environment of those that wait for as long as it lives.
  echo 'import os, subprocess; subprocess.Popen(["sleep", "600"]); imported_by = os.getpid(); said_then = os.environ["HOLDFAST_RANK"]' >"$home/modules/slow_module.py"
  cat >"$home/modules/train.py" <<'END'
import sys
early = "slow_module" in sys.modules
import os, time, slow_module
rank, attempt = os.environ["RANK"], os.environ["HOLDFAST_ATTEMPT"]
shown = dict(e.split("=", 1) for e in open("/proc/self/environ").read().split("\0") if "=" in e)
print(f"rank {rank} attempt {attempt} early {early} waited as {slow_module.said_then} main {__name__} {__file__} {sys.argv[1:]} in {os.getcwd()}"
      f" shown {int(shown['HOLDFAST_RANK'])} {int(shown['HOLDFAST_ATTEMPT'])} path {sys.path[0]} master {os.environ['MASTER_PORT'] != ''}", flush=True)
if attempt == "2" and rank == "1":
    sys.exit(7)
while not os.path.exists("/shared/home/warmed"):
    time.sleep(0.1)
END
  rm -f "$home/warmed"
  start warm --set 'rank.command=["python3", "/shared/home/modules/train.py", "--lr", "1"]' --set 'rank.warm=["slow_module"]' \
    --set 'rank.environment=["PYTHONPATH=/shared/home/modules"]' --set rank.directory=/shared/home
  check "ranks are up" soon 60 ranks_up 1
  kill_agent "$(nth 1)"
  mini kill-node "$(nth 2)"
  check "rank 1 fails in the second attempt" soon 120 ranks_up 3
  touch "$home/warmed"
  ends_as "done" 0
  check "its status is known" equal "$(events "$run" | jq -rs 'map(select(.event == "rank_exited" and .status == 7)) | length')" 1
  local words=" waited as -000000001 main __main__ /shared/home/modules/train.py ['--lr', '1'] in /shared/home shown 3 "
  check "a spare's rank was warm" equal "$(cat "$home/$run/logs/attempt-0002/rank-00003.log")" \
    "rank 3 attempt 2 early True${words}2 path /shared/home/modules master True"
  check "what they leave is named" holds "$(cat "$home/$run/logs"/agent-*.log)" "has left processes that end with the run: sleep ("
  check "nobody waits any more" equal "$(on "$(nth 1)" pgrep -c -f slow_module)" 0
  mini revive-node "$(broken_node)"
}
broken_node() { events "$run" | jq -rs 'map(select(.event == "node_lost"))[0].node'; }

# event_has EVENT WORD: one of those has the word.
event_has() { events "$run" | grep "\"event\":\"$1\"" | grep -q "$2"; }

# A program that takes three times stop_s to save when it gets SIGTERM. Rank 1 does not save; rank 2 is a shell script
# that starts it and that the signal ends; the name of rank 3's process has a space, which hides it from SLURM
# (proctrack/linuxproc).
saving_program() {
  cp -L /bin/sh "$home/a program"
  cat >"$home/saves.sh" <<'END'
if [ "$RANK" = 3 ] && [ -z "${inside-}" ]; then
  inside=1 exec "/shared/home/a program" "$0"
fi
if [ "$RANK" = 2 ] && [ -z "${inside-}" ]; then
  inside=1 sh "$0"
  exit
fi
cd "$HOLDFAST_RUN_DIR" || exit 2
[ "$RANK" = 1 ] || trap 'echo once >>"asked-$RANK"; sleep 6; echo "attempt $HOLDFAST_ATTEMPT" >>"saved-$RANK"; exit 0' TERM
touch "up-$RANK"
while :; do sleep 0.2; done
END
}
# start_saving NAME SET...
start_saving() {
  saving_program
  start "$1" --set 'rank.command=["sh", "/shared/home/saves.sh"]' --set supervise.stop_s=2 "${@:2}"
  check "$run: ranks are up" soon 60 all_up
  check "$run: on record" soon 60 ranks_up 1
}
all_up() { (($(find "$home/$run" -name 'up-*' | wc -l) == 4)); }
# has_saved STATUS EXIT_CODE: all ranks finished their saves and got one request, and the result is no better than that.
has_saved() {
  ends_as "$1" "$2"
  local rank
  for rank in 0 2 3; do
    check "$run: rank $rank has saved" equal "$(cat "$home/$run/saved-$rank")" "attempt 1"
    check "$run: rank $rank was asked once" equal "$(cat "$home/$run/asked-$rank")" once
  done
  check "$run: what was saved is not known" holds "$(result "$run" .why)" "what the program saved is not known to Holdfast"
  check "$run: one attempt" equal "$(result "$run" '.attempts | length')" 1
}

# refuses ORDER...: with exit code 2, and the reason.
refuses() {
  local said code=0
  said=$(mini exec holdfast ctl "/shared/home/$run" "$@" 2>&1) || code=$?
  check "$run: $1 is refused" equal "$code" 2
  check "$run: it is said why" holds "$said" "does not report to its agents"
}

case_stop() {
  start_saving stop
  refuses save
  refuses pause
  refuses evict "$(nth 1)"
  check "a spare can be evicted" mini exec holdfast ctl "/shared/home/$run" evict "$(spare)"
  check "status" holds "$(mini exec holdfast status "/shared/home/$run")" "running, and the program reports no progress"
  check "stop" mini exec holdfast ctl "/shared/home/$run" stop
  has_saved stopped 93
}
spare() { mini exec holdfast ctl "/shared/home/$run" spares --json | jq -r '[.nodes[] | select(.role == "spare" and (.batch_host | not)).node][0]'; }

case_cancel() {
  # With a PMIx server, too.
  local launch
  for launch in direct mpi; do
    start_saving "cancel_$launch" --set "rank.launch=$launch"
    mini exec scancel "$job"
    has_saved drained 75
    check "$run: what SLURM does not see is signalled" holds "$(cat "$home/$run"/logs/agent-*.log)" "SIGTERM was sent to rank 3"
    check "$run: and nothing else" equal "$(cat "$home/$run"/logs/agent-*.log | grep -c 'SIGTERM was sent to')" 1
  done
}

case_limit() {
  start_saving limit --set rank.launch=mpi
  mini exec scancel --batch --signal=USR1 "$job"
  check "$run: the run is over" soon "$run_limit" over "$run"
  check "$run: back in the queue" soon 60 queued
  mini exec scancel "$job"
  has_saved drained 75
}
queued() { [[ $(mini exec squeue -h -j "$job" -o %T) == PENDING ]]; }

case_agent_killed() {
  # The processes of all agents die, that of the leader, too; their ranks continue, and their exit status is known.
  cat >"$home/waits.sh" <<'END'
cd "$HOLDFAST_RUN_DIR" || exit 2
while [ ! -e go ]; do
  sleep 0.1
  [ ! -e crash ] || [ "$HOLDFAST_ATTEMPT" != 1 ] || exit 7
done
END
  start agent_killed --set 'rank.command=["sh", "/shared/home/waits.sh"]'
  check "ranks are up" soon 60 ranks_up 1
  local first second
  first=$(nth 1) second=$(nth 2)
  kill_agent "$first"
  kill_agent "$second"
  signal_leader KILL
  check "another leader finds the attempt whole" soon 60 event attempt_adopted
  # The leader assumes that an agent has no ranks when it names none for 15 s.
  sleep 17
  check "the attempt goes on" equal "$(events "$run" | grep -c attempt_planned)" 1
  touch "$home/$run/crash"
  check "another attempt" soon 60 ranks_up 2
  check "the exit code is known" equal "$(events "$run" | jq -rs 'map(select(.event == "rank_exited"))[0].status')" 7
  kill_agent "$first"
  touch "$home/$run/go"
  ends_as "done" 0
  check "two attempts" equal "$(result "$run" '.attempts | length')" 2
}
case_escapes() {
  # What a rank has started ends with its attempt, also without its environment and in a session of its own.
  cat >"$home/escapes.sh" <<'END'
env -i setsid sleep 7654 &
cd "$HOLDFAST_RUN_DIR" || exit 2
while [ ! -e go ]; do
  sleep 0.1
  [ ! -e crash ] || [ "$HOLDFAST_ATTEMPT" != 1 ] || exit 7
done
END
  start escapes --set 'rank.command=["sh", "/shared/home/escapes.sh"]'
  check "ranks are up" soon 60 ranks_up 1
  local node per_node
  node=$(nth 1)
  per_node=$(on "$node" pgrep -c -f 'sleep 7654')
  check "they have started what has no environment" at_least "$per_node" 1
  touch "$home/$run/crash"
  check "another attempt" soon 60 ranks_up 2
  check "only what belongs to it lives" equal "$(on "$node" pgrep -c -f 'sleep 7654')" "$per_node"
  kill_agent "$node"
  sleep 3 # the leader greets the agent after it
  check "and goes on with another agent" equal "$(on "$node" pgrep -c -f 'sleep 7654')" "$per_node"
  touch "$home/$run/go"
  ends_as "done" 0
  check "and ends with the run" equal "$(on "$node" pgrep -c -f 'sleep 7654')" 0
}
event() { events "$run" | grep -q "\"event\":\"$1\""; }
# kill_agent NODE: kills its worker process; the guardian starts another one.
kill_agent() {
  local before
  before=$(agent_of "$1")
  on "$1" kill -KILL "$before"
  check "$run: another agent on $1" soon 20 another_agent "$1" "$before"
}
another_agent() { [[ -n $(agent_of "$1") && $(agent_of "$1") != "$2" ]]; }

run_alone "$@"
