#!/usr/bin/env bash
# shellcheck disable=SC2317 # check and soon call most functions
# Test scripts/minipod: the cluster works, its nodes are separate,
# each fault has its effects, and nothing remains.
# Speaks TAP; exits 77 when there is no SLURM here to test with.

set -uo pipefail

source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
pod=$source/scripts/minipod
# shellcheck source=tests/support/tap.sh
source "$source/tests/support/tap.sh"
need_cluster "$@"

# In namespaces of the test's own, so that what it finds left is the pod's, whatever else this machine runs.
if [[ ${1:-} != inside ]]; then
  exec unshare --mount --net --pid --fork --kill-child --mount-proc "$0" inside
fi
mount -n -t tmpfs tmpfs /run

dir=$(mktemp -d /var/tmp/minipod-test.XXXXXX)
export HOLDFAST_MINIPOD_DIR=$dir
home=$dir/shared/home
trap '"$pod" down --purge 2>/dev/null; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP

mini() { timeout 120 "$pod" "$@"; }
on() { local node=$1; shift; mini exec --node "$node" --chdir / "$@"; }

fails_with() { # STATUS COMMAND...
  local want=$1 status=0
  shift
  "$@" || status=$?
  equal "$status" "$want"
}
not() { ! "$@"; }

# ------------------------------------------------------------- the cluster --

PATH=$PATH:/usr/sbin:/sbin
links() { ip -o link | awk '{print $2}' | sort; }
mounts() { awk '{print $2, $3}' /proc/self/mounts | sort; }
machine_files() { cksum /etc/passwd /etc/group /etc/hosts; ls / /run /etc/slurm; }

links_before=$(links)
mounts_before=$(mounts)
files_before=$(machine_files)

cd / || exit 1
check "status says down" fails_with 1 mini status

# ------------------------------------------------------- folders of others --

# Root does nothing in a folder that another user has made, may write to, or leads to: whatever the verb.
others=$(mktemp -d /var/tmp/minipod-others.XXXXXX)
chmod 01777 "$others"
mkdir "$others"/{theirs,open,way,way/pod}
chown 61001 "$others"/{theirs,way}
chmod 0777 "$others/open"
ln -s "$dir" "$others/link"
chown -h 61001 "$others/link"
echo "$$ $(sed 's/.*) //' /proc/$$/stat | cut -d' ' -f20)" >"$others/holder"
cp "$others/holder" "$others/theirs/"
touch "$others/theirs/ready"
before=$(find "$others" -printf '%p %u %m %s\n' | sort)
refused() { # FOLDER WORDS
  local verb said
  for verb in "up --nodes 1" status "exec true" "kill-node dgx001" faults "down --purge"; do
    # shellcheck disable=SC2086 # a verb and its arguments
    # shellcheck disable=SC2015 # both must hold
    ! said=$(mini --dir "$1" $verb 2>&1) && [[ $said == *"$2"* ]] || { echo "$verb: $said"; return 1; }
  done
}
check "a folder that another user has made is refused" refused "$others/theirs" "theirs belongs to user 61001"
check "and one below it" refused "$others/way/pod" "way belongs to user 61001"
check "and one that others may write to" refused "$others/open" "everybody may write to $others/open"
check "and a link" refused "$others/link" "$others/link is a link"
check "and one behind it" refused "$others/link/pod" "$others/link is a link"
check "nothing is written or removed there" equal "$(find "$others" -printf '%p %u %m %s\n' | sort)" "$before"
rm -rf "$others"
# shellcheck disable=SC2016  # for the shell that runs it
check "up, without stdin and with a pipe for output" \
  bash -c 'said=$(timeout 120 "$0" up --nodes 4 2>&1 <&-) || { echo "$said"; false; }' "$pod"
((failed == 0)) || { echo "Bail out! no minipod"; exit 1; }
check "up again changes nothing" mini up --nodes 4
check "up in another shape is refused" fails_with 1 mini up --nodes 5
check "an unknown verb is a usage error" fails_with 2 mini kill-nodes dgx001
check "an unknown node is a usage error" fails_with 2 mini kill-node dgx005

# All namespaces of the pod, to search for at the end.
namespaces=$(for kind in mnt net pid uts ipc; do
  mini exec --root lsns -n -r -t $kind -o NS
done | sort -u)
check "each node has five namespaces, as has the login host" \
  equal "$(wc -l <<<"$namespaces")" 25

every_node_runs() { equal "$(mini exec srun -N4 hostname | sort | paste -sd' ')" \
  "dgx001 dgx002 dgx003 dgx004"; }
check "srun reaches every node" every_node_runs
check "jobs run as holdfast, in its home" equal \
  "$(mini exec srun -n1 sh -c 'id -un; pwd' | paste -sd' ')" "holdfast /shared/home"
check "arguments pass untouched" equal \
  "$(mini exec printf '<%s>' 'a  b' "\$HOME" '' '*' "it's")" "<a  b><\$HOME><><*><it's>"
check "the exit status passes" fails_with 7 mini exec sh -c 'exit 7'
check "GPUs are granted" equal \
  "$(mini exec srun -n1 --gpus=3 sh -c "echo \$CUDA_VISIBLE_DEVICES")" "0,1,2"
check "topology has a switch per scalable unit" equal \
  "$(mini exec srun -w dgx003 -n1 sh -c "echo \$SLURM_TOPOLOGY_ADDR")" "pod.su2.dgx003"
check "the munge key is private" not mini exec cat /run/minipod/munge/key

batch() {
  mini exec sbatch -W -N2 -o batch.out --wrap 'srun hostname' >/dev/null
  equal "$(sort "$home/batch.out" | paste -sd' ')" "dgx001 dgx002"
}
check "sbatch runs a job" batch

overlap() {
  mini exec sbatch -W -N2 --exclusive -o overlap.out \
    --wrap 'srun sleep 2 & srun --overlap --exact -n2 echo in; wait' >/dev/null
  equal "$(paste -sd' ' "$home/overlap.out")" "in in"
}
check "steps overlap" overlap

# --------------------------------------------------------------- isolation --

mine=minipod-test-$$
check "a name is set in dgx001" on dgx001 sh -c "
  echo here >/dev/shm/$mine && echo here >/tmp/$mine && echo here >/var/tmp/$mine
  ipcmk -M 4096 >/dev/null"
for path in /dev/shm /tmp /var/tmp; do
  check "$path is the node's own" not on dgx002 test -e $path/$mine
done
check "System V memory is the node's own" equal \
  "$(on dgx002 ipcs -m | grep -c 0x)" "0"
check "hostname is the node's own" equal "$(on dgx002 hostname)" "dgx002"
check "processes are the node's own" equal "$(on dgx001 pgrep -c -x slurmd)" "1"
check "interfaces are the node's own" equal \
  "$(on dgx001 ls /sys/class/net | paste -sd' ')" "eth0 lo"
check "nobody gets round /shared" not on dgx001 ls "$dir/shared"

# ------------------------------------------------------------------- MPI ---

if command -v mpicc >/dev/null; then
  cat >"$dir/hello.c" <<'C'
#include <mpi.h>
#include <stdio.h>
int main(int argc, char** argv) {
  int rank, size, sum;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("%d ranks, sum %d\n", size, sum);
  MPI_Finalize();
}
C
  check "mpicc compiles" mpicc -o "$dir/shared/opt/hello" "$dir/hello.c"
  check "MPI runs on two nodes" equal \
    "$(mini exec timeout 60 srun --mpi=pmix -N2 -n4 /shared/opt/hello 2>&1)" \
    "4 ranks, sum 6"
  check "MPI runs without the environment of exec" equal \
    "$(mini exec timeout 60 srun --export=NONE --mpi=pmix -N2 -n4 /shared/opt/hello 2>&1)" \
    "4 ranks, sum 6"
else
  echo "# no mpicc: MPI not tried"
fi

# ------------------------------------------------------------------ faults --

# A step on three nodes that adds a line a node five times a second, and
# survives the loss of any but the first.
cat >"$home/beat.sh" <<'SH'
#!/bin/bash
srun -n3 --no-kill sh -c 'while :; do date +%s >>beat.$(hostname); sleep 0.2; done'
SH
beats() { wc -l <"$home/beat.$1" 2>/dev/null || echo 0; }
beating() { local n; n=$(beats "$1"); soon 60 more_than "$n" "$1"; }
more_than() { (($(beats "$2") > $1)); }
still() { local n; n=$(beats "$1"); sleep 1; equal "$(beats "$1")" "$n"; }
state() { mini exec sinfo -h -n "$1" -o %T; }
state_is() { [[ $(state "$1") =~ ^($2)$ ]] || { state "$1"; false; }; }
job_is() { equal "$(mini exec squeue -h -j "$job" -o %T)" "$1"; }
all_idle() { equal "$(mini exec sinfo -h -o '%T %D')" "idle 4"; }
# Connect and read nothing: does node $2 answer node $1?
answers() { on "$1" timeout 3 bash -c ": </dev/tcp/$2/6818"; }
running() { on "$1" pgrep -u holdfast -f 'while :' >/dev/null; }

job=$(mini exec sbatch --parsable --no-kill -N3 -w 'dgx[002-004]' \
  -o /var/tmp/beat.out beat.sh)
for node in dgx002 dgx003 dgx004; do
  check "$node beats" soon 60 more_than 0 $node
done

check "freeze-node" mini freeze-node dgx003
check "a frozen node stands still" still dgx003
check "and nobody may enter it" fails_with 1 on dgx003 true
check "the others beat on" beating dgx002
check "thaw-node" mini thaw-node dgx003
check "a thawed node beats" beating dgx003

check "nodes answer each other" answers dgx001 dgx003
check "cut-link" mini cut-link dgx003
check "a cut node does not answer" not answers dgx001 dgx003
check "nor hear" not answers dgx003 dgx001
check "its processes live" running dgx003
check "it cannot write what is shared" still dgx003
check "nor open it" not on dgx003 ls /shared
check "nor by a relative name" not on dgx003 sh -c "
  cd /proc/\$(pgrep -u holdfast -f 'while :' | head -n1)/cwd && touch new"
check "heal-link" mini heal-link dgx003
check "a healed node answers" soon 60 answers dgx001 dgx003
check "and writes again" beating dgx003

held() {
  mini exec --node dgx003 sh -c 'exec 3>held; until [ -e let-go ]; do sleep 0.2; done' &
  soon 60 test -e "$home/held" || return
  local said
  said=$(mini cut-link dgx003 2>&1) && mini heal-link dgx003 || return
  touch "$home/let-go"
  wait $!
  [[ $said == *"open for writing"* ]] || { echo "$said"; false; }
}
check "cut-link tells of files open for writing" held
ends_with_us() {
  timeout 1 "$pod" exec sleep 4321
  soon 60 not mini exec pgrep -f 'sleep 4321'
}
check "what exec started ends with it" ends_with_us

pids_of() { ps -eo pidns=,pid= | awk -v ns="$1" '$1 == ns {print $2}'; }
dead_ns=$(on dgx004 readlink /proc/self/ns/pid | tr -dc 0-9)
check "kill-node" mini kill-node dgx004
check "its processes are gone" equal "$(pids_of "$dead_ns")" ""
check "it does not answer" not answers dgx001 dgx004
check "it writes no more" still dgx004
check "SLURM does not know yet" state_is dgx004 "mixed|allocated"
check "the step goes on" beating dgx002
mini exec --root scontrol update NodeName=dgx004 State=DOWN Reason=test
sleep 1
check "nor does it end when SLURM knows" beating dgx002
check "the job has shrunk" equal \
  "$(mini exec squeue -h -j "$job" -o '%T %N')" "RUNNING dgx[002-003]"
check "revive-node" mini revive-node dgx004
check "a revived node is idle" soon 60 state_is dgx004 idle
check "its local disk is there, its memory is not" not on dgx004 test -e /dev/shm/$mine
check "it takes a step" equal \
  "$(mini exec srun -w dgx004 -n1 hostname)" "dgx004"
check "and is idle again" soon 60 state_is dgx004 idle
touch "$dir/then" # else the saved state may have that step

saved() { [[ $dir/slurmctld/state/job_state -nt $dir/then ]]; }
check "slurmctld has saved what it learned" soon 60 saved
check "kill-slurmctld" mini kill-slurmctld
check "it is gone" not mini exec squeue
check "the step goes on without it" beating dgx002
check "start-slurmctld" mini start-slurmctld
check "it knows the job" soon 60 job_is RUNNING
check "the step never stopped" beating dgx003
mini exec scancel "$job"
check "all nodes are idle again" soon 60 all_idle

check "hide-shared" mini hide-shared
check "no node opens what is shared" not on dgx001 ls /shared/home
check "show-shared" mini show-shared
check "and now it does" on dgx001 ls /shared/home
check "kill-slurmd" mini kill-slurmd dgx001
check "slurmd is gone, the node is not" equal "$(on dgx001 sh -c 'pgrep -c -x slurmd; hostname' | paste -sd' ')" "0 dgx001"
check "slow-node" mini slow-node dgx002
stopped_there() { on_login "ps -o stat= --pid \$(pgrep --ns \$(cat /run/minipod/nodes/$1/pid) --nslist pid | paste -sd,) | grep -q ^T"; }
on_login() { mini exec --root sh -c "$1"; }
check "a slow node is stopped now and then" soon 60 stopped_there dgx002
check "and another is not" not stopped_there dgx003
check "two names, two nodes" mini kill-node dgx003 dgx004
check "status tells" equal "$(mini status | grep -cE 'dgx002 is slow|dgx00[34] is killed')" 3
check "heal takes it all back" mini heal
check "no fault stands" not grep -qE ' is (slow|killed|hidden)' <(mini status)
check "and all nodes are idle" all_idle
check "there is another user" equal "$(mini exec --intruder --node dgx001 --chdir / id -un)" intruder

log_is_complete() {
  equal "$(mini faults | sed -E 's/.*"fault": "([^"]*)".*/\1/' | paste -sd' ')" \
    "freeze-node thaw-node cut-link heal-link cut-link heal-link kill-node revive-node kill-slurmctld start-slurmctld hide-shared show-shared kill-slurmd slow-node kill-node kill-node start-slurmd unslow-node revive-node revive-node"
  [[ $(mini faults | grep -cE '^\{"time": "[0-9-]{10}T[0-9:]{8}\.[0-9]{6}Z", "unix": [0-9]+\.[0-9]{6}, "fault": "[a-z-]+"(, "node": "dgx[0-9]{3}")?\}$') == 20 ]]
}
check "the fault log has it all" log_is_complete

# -------------------------------------------------------------------- down --

mini freeze-node dgx001
check "down, with a frozen node" mini down
check "down again" mini down
left_over() {
  local left
  left=$(comm -12 <(lsns -n -r -o NS | sort -u) <(echo "$namespaces"))
  equal "$left" ""
}
check "no namespace is left, and so no process" left_over
check "no mount is left" equal "$(mounts)" "$mounts_before"
check "no link is left" equal "$(links)" "$links_before"
check "the machine's files are as they were" equal "$(machine_files)" "$files_before"
check "down --purge deletes the files" mini down --purge
check "they are gone" not test -e "$dir"

# ------------------------------------------------------- data file systems --

check "hang-data needs --data fuse" holds "$(mini up --nodes 1 2>&1 && mini hang-data 2>&1)" "up --data fuse"
check "freeze-data needs --data ext4" holds "$(mini freeze-data 2>&1)" "up --data ext4"
mini down --purge
# writes TO: a process on dgx001 that writes there, until it has done it.
writes() { on dgx001 setsid -f sh -c "echo written >$1"; }
writer() { on dgx001 ps -e -o stat=,args= | grep "echo written >$1"; }
waits() { writer "$1" | grep -q ^D; } # in the kernel
if [[ -c /dev/fuse ]] && command -v bindfs >/dev/null; then
  check "up --data fuse" mini up --nodes 2 --data fuse
  mini hang-data dgx001
  writes /data/fuse/one
  check "a writer to /data/fuse waits on that node" soon 30 writer /data/fuse/one
  check "not on another" on dgx002 sh -c 'echo >/data/fuse/two'
  check "status says so" holds "$(mini status)" "dgx001 has a data file system that hangs"
  on dgx001 pkill -KILL -f 'data/fuse/on[e]'
  check "a writer that waits can be killed" soon 30 not writer /data/fuse/one
  check "heal wakes it" mini heal
  check "all nodes see it" equal "$(on dgx001 ls /data/fuse; ls "$dir/data/fuse")" "$(printf 'two\ntwo')"
  mini down --purge
else
  echo "# no bindfs or /dev/fuse: no data file system that hangs"
fi
loops() { losetup -n -O NAME | sort; }
loops_before=$(loops)
if said=$(mini up --nodes 1 --data ext4 2>&1); then
  on dgx001 sh -c 'echo here >/data/ext4/file'
  check "freeze-data" mini freeze-data
  check "a frozen file system can be read" equal "$(on dgx001 cat /data/ext4/file)" here
  writes /data/ext4/one
  check "a writer waits in the kernel" soon 30 waits /data/ext4/one
  on dgx001 pkill -KILL -f 'data/ext4/on[e]'
  sleep 1
  check "and cannot be killed" waits /data/ext4/one
  check "status says that it is frozen" holds "$(mini status)" "/data/ext4 is frozen"
  check "heal thaws it" mini heal
  check "and the writer ends" soon 30 not writer /data/ext4/one
  mini freeze-data
  writes /data/ext4/two
  check "another writer waits" soon 30 waits /data/ext4/two
  check "down, with a frozen file system" mini down --purge
  check "no process is left" equal "$(pgrep -f 'data/ext4/tw[o]')" ""
  check "no loop device is left" equal "$(loops)" "$loops_before"
  check "no mount is left of it" equal "$(mounts)" "$mounts_before"
else
  check "a machine without loop devices is told of" holds "$said" "loop device"
fi

# ---------------------------------------------------------------- profiles --

check "up --profile private" mini up --nodes 2 --profile private
shares() { # a script and steps in its job
  local look='ls /tmp/mine /dev/shm/mine'
  mini exec sbatch -W -N2 -o private.out --wrap "srun --overlap touch /tmp/mine /dev/shm/mine; srun --overlap $look; $look" >/dev/null
  equal "$(sort "$home/private.out" | uniq -c | paste -sd' ' | tr -s ' ')" " 3 /dev/shm/mine 3 /tmp/mine"
}
check "the steps of a job share its /tmp and /dev/shm" shares
check "other jobs see nothing of them" not mini exec srun -N2 ls /tmp/mine /dev/shm/mine
check "nor does the node" not on dgx001 ls /tmp/mine /dev/shm/mine
check "a revived node makes private folders, too" mini kill-node dgx001
check "it is revived" mini revive-node dgx001
check "it is idle" soon 60 state_is dgx001 idle
check "it takes a job" equal "$(mini exec srun -w dgx001 -n1 hostname)" dgx001
mini down --purge
if command -v mariadbd >/dev/null; then
  check "up --profile accounting" mini up --nodes 1 --profile accounting
  mini exec srun -n1 true
  listed() { holds "$(mini exec sacct -n -P -o JobName,QOS,State)" "true|low|COMPLETED"; }
  check "sacct lists the job" soon 30 listed
  check "down" mini down --purge
  check "no namespace of the node is left" equal "$(lsns -n -r -t uts -o NS | wc -l)" 1
else
  check "a profile names the packages that it lacks" holds "$(mini up --nodes 1 --profile accounting 2>&1)" mariadb-server
fi

conclude
