#!/usr/bin/env bash
# The part of minipod inside the namespaces: inside.sh VERB [NODE], run as
# root, where process numbers are those of the minipod.

set -euo pipefail
# shellcheck source=scripts/minipod.d/net.sh
source /run/minipod/lib/net.sh

pod=/run/minipod
read -r -a shape <"$pod/shape"
declare -i nodes
declare ipv6='' "${shape[@]}"
[[ -z $ipv6 ]] || use_ipv6

die() {
  printf 'minipod: %s\n' "$*" >&2
  exit 1
}

# wait_until SECONDS COMMAND...: poll COMMAND until it succeeds.
wait_until() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@"; do
    ((SECONDS < deadline)) || return 1
    sleep 0.1
  done
}

# --------------------------------------------------------------- bring-up ---

bring_up() {
  start_network
  start_munged
  choose_plugins
  chown slurm: "$pod/slurmctld"
  chown holdfast: /shared/home
  chmod 0755 /shared /shared/opt /shared/home
  [[ ${profile-} != accounting ]] || start_accounting
  start_slurmctld
  local i
  for ((i = 1; i <= nodes; i++)); do
    name_of "$i"
    start_node "$name"
  done
  wait_until $((60 + nodes)) all_idle || {
    tail -v -n 10 "$pod"/nodes/dgx001/{node.log,slurmd.log} >&2 || true
    sinfo -N -o '%N %T %E' | sort -u | grep -v ' idle ' | head -20 >&2 || true
    die "not all nodes are idle after $((60 + nodes)) s"
  }
}

start_network() {
  switch_ipv6
  ip -batch - <<BATCH
link set lo up
link add br0 address $login_mac type bridge forward_delay 0
addr add $login_addr/$prefix dev br0${ipv6:+ nodad}
link set br0 up
BATCH
  sed 's/dev eth0/dev br0/' "$pod/etc/neighbours" | ip -batch -
}

start_munged() {
  (umask 077 && head -c 1024 /dev/urandom >"$pod/munge/key")
  munged --key-file="$pod/munge/key" --socket=/run/munge/munge.socket.2 \
    --pid-file="$pod/munge/munged.pid" --log-file="$pod/munge/munged.log" \
    --seed-file="$pod/munge/seed" --num-threads=4 \
    </dev/null >"$pod/log/munged.log" 2>&1
  wait_until 10 test -S /run/munge/munge.socket.2 ||
    die "munged does not answer"
}

choose_plugins() {
  local conf=$pod/etc/slurm/slurm.conf
  ! srun --mpi=list 2>&1 | grep -qw pmix ||
    sed -i 's/^MpiDefault=.*/MpiDefault=pmix/' "$conf"
  # Its name from 25.11 on.
  [[ $(slurmctld -V | sed -E 's/.* ([0-9]+)\.([0-9]+).*/\1\2/') -lt 2511 ]] ||
    sed -i 's|^JobContainerType=job_container/|NamespaceType=namespace/|' "$conf"
}

# A database server, slurmdbd, and in it the users and two qualities of service: `low`, which is the default, and
# `high`, whose jobs end those of `low` after the grace time.
start_accounting() {
  local at=/run/accounting
  chown slurm: "$at" "$pod/etc/slurm/slurmdbd.conf"
  install -d -o mysql "$at/mysql" /run/mysqld /run/mariadbd # where the socket is, in older and newer releases
  # TMPDIR may be a folder of the machine that is not here.
  env -u TMPDIR mariadb-install-db --no-defaults --user=mysql --datadir="$at/mysql" --skip-test-db >"$pod/log/mariadb.log" 2>&1 ||
    die "the database cannot be made (see $(<"$pod/etc/dir")/log/mariadb.log)"
  setsid env -u TMPDIR mariadbd --no-defaults --user=mysql --datadir="$at/mysql" --skip-networking \
    --innodb-buffer-pool-size=64M --innodb-log-file-size=32M --innodb-lock-wait-timeout=900 </dev/null >>"$pod/log/mariadb.log" 2>&1 &
  wait_until 20 mariadb-admin --no-defaults ping >/dev/null 2>&1 || die "mariadbd does not answer (see $(<"$pod/etc/dir")/log/mariadb.log)"
  # slurmdbd would make the database, too; with MariaDB 11.8.9 (Debian 13) it then ends with "Number of columns ... (=0)".
  mariadb --no-defaults <<<"CREATE DATABASE accounting; CREATE USER slurm@localhost IDENTIFIED VIA unix_socket;
    GRANT ALL ON accounting.* TO slurm@localhost"
  setsid slurmdbd -D </dev/null >"$pod/log/slurmdbd.log" 2>&1 &
  wait_until 60 account show cluster || die "slurmdbd does not answer (see $(<"$pod/etc/dir")/log/slurmdbd.log)"
  account add cluster minipod
  account add qos low GraceTime=30
  account add qos high Preempt=low Priority=1000
  account add account users Description=users Organization=minipod
  account add user holdfast,intruder Account=users QOS=low,high DefaultQOS=low
}
account() { sacctmgr --immediate --quiet "$@" >/dev/null 2>>"$pod/log/sacctmgr.log"; }

slurmctld_pid() { pgrep -o -x slurmctld; }

start_slurmctld() {
  ! slurmctld_pid >/dev/null || die "slurmctld runs already"
  # In the foreground of its own session, so that no file of the caller stays
  # open.
  setsid slurmctld -D </dev/null >"$pod/log/slurmctld.log" 2>&1 &
  local controller=$!
  if ! wait_until 30 answers_or_dead "$controller" || is_gone "$controller"; then
    die "slurmctld does not answer (see $(<"$pod/etc/dir")/log/slurmctld.log)"
  fi
}

answers_or_dead() {
  scontrol ping 2>/dev/null | grep -q 'is UP' || is_gone "$1"
}

start_node() {
  local make=(unshare --net --uts --mount --ipc --pid --fork --kill-child)
  if [[ ${profile-} == private ]]; then
    choose_processor
    make=(taskset -c "$processor" "${make[@]}" taskset -c "$(taskset -cp $$ | sed 's/.*: //')")
  fi
  mkdir -p "$pod/nodes/$1"
  setsid unshare --mount bash "$pod/lib/storage.sh" "$pod/nodes/$1" "${make[@]}" \
    bash "$pod/lib/node.sh" "$1" </dev/null >>"$pod/nodes/$1/node.log" 2>&1 &
}

# job_container/tmpfs mounts the mount namespace of a job, as a file, in that of the node. Linux allows it only if the job's
# has a higher number. Since 6.18 each processor numbers on its own, so the node's must be made on the one whose numbers are lowest.
choose_processor() {
  local other all
  all=$(nproc --all) processor=''
  for ((other = 0; other < all; other++)); do
    taskset -c "$other" true 2>/dev/null || continue # not one of ours
    [[ -n $processor ]] && holds_namespace "$processor" "$other" || processor=$other
  done
}
holds_namespace() {
  # shellcheck disable=SC2016 # for the inner shell
  taskset -c "$1" unshare --mount bash -c \
    'mount -n -t tmpfs none /mnt && touch /mnt/held && taskset -c "$0" unshare --mount=/mnt/held true' "$2" 2>/dev/null
}

all_idle() {
  [[ $(sinfo -h -N -o %T 2>/dev/null | grep -cx idle) == "$nodes" ]]
}

# ----------------------------------------------------------------- faults ---

# Writes the line, with the present time, just before the fault.
log_fault() {
  local now=$EPOCHREALTIME time node=''
  TZ=UTC printf -v time '%(%Y-%m-%dT%H:%M:%S)T' "${now%.*}"
  [[ -z ${2-} ]] || node=", \"node\": \"$2\""
  printf '{"time": "%s.%sZ", "unix": %s, "fault": "%s"%s}\n' \
    "$time" "${now#*.}" "$now" "$1" "$node" >>"$pod/faults.jsonl"
}

# An active fault is a file in the node's directory.
has() { [[ -e $pod/nodes/$1/$2 ]]; }
must_be() { has "$1" "$2" || die "node $1 is not $2. ${3-}"; }
must_not_be() { ! has "$1" "$2" || die "node $1 is $2 already. ${3-}"; }

pid_of() { read -r pid <"$pod/nodes/$1/pid"; }

# All at once: their processes may take a while to end.
kill_nodes() {
  local node pids=()
  for node; do must_not_be "$node" killed "Did you mean revive-node?"; done
  for node; do
    ! has "$node" slow || end_slowness "$node"
    pid_of "$node"
    port_of "$node"
    log_fault kill-node "$node"
    ip link set "$port" down
    kill -KILL "$pid"
    # Their calls end with an error: nothing of the node waits for them any more.
    signal_servers KILL "$node"
    rm -f "$pod/nodes/$node"/{frozen,cut,hung,hung.data}
    touch "$pod/nodes/$node/killed"
    pids+=("$pid")
  done
  for pid in "${pids[@]}"; do
    wait_until 20 is_gone "$pid" || die "not all processes of $* end$(frozen_hint)"
  done
}

is_gone() { ! kill -0 "$1" 2>/dev/null; }

revive_node() {
  must_be "$1" killed "Did you mean thaw-node or heal-link?"
  port_of "$1"
  log_fault revive-node "$1"
  # Sockets of dead processes may keep the old namespace for minutes. Without
  # the link they cannot send.
  ip link delete "$port" 2>/dev/null || true
  rm -f "$pod/nodes/$1"/{killed,pid}
  # Steps from before the power failure.
  rm -rf "$pod/nodes/$1/spool"
  start_node "$1"
  wait_until 30 is_listening "$1" ||
    die "node $1 does not start (see its node.log)"
  [[ ! -e $pod/shared.hidden ]] || cover_shared "$1"
  slurmctld_pid >/dev/null || return 0
  wait_until 30 is_known "$1" || die "SLURM does not hear node $1"
}

is_listening() { (: <"/dev/tcp/$1/6818") 2>/dev/null; }

is_known() {
  [[ $(sinfo -h -n "$1" -o %T 2>/dev/null) =~ ^(idle|mixed|allocated|completing)$ ]]
}

freeze_node() {
  must_not_be "$1" killed
  must_not_be "$1" slow "Did you mean unslow-node?"
  must_not_be "$1" frozen "Did you mean thaw-node?"
  pid_of "$1"
  touch "$pod/nodes/$1/frozen"
  log_fault freeze-node "$1"
  # Processes may start during the loop: repeat until none runs.
  wait_until 20 stop_all "$pid" || die "node $1 has processes that do not stop$(frozen_hint)"
}

stop_all() {
  pkill -STOP --ns "$1" --nslist pid
  [[ -z $(pgrep -r R,S,D,I --ns "$1" --nslist pid) ]]
}

thaw_node() {
  must_be "$1" frozen
  pid_of "$1"
  log_fault thaw-node "$1"
  pkill -CONT --ns "$pid" --nslist pid
  rm -f "$pod/nodes/$1/frozen"
}

cut_link() {
  must_not_be "$1" killed
  must_not_be "$1" cut "Did you mean heal-link?"
  pid_of "$1"
  port_of "$1"
  log_fault cut-link "$1"
  ip link set "$port" down
  touch "$pod/nodes/$1/cut"
  signal_servers STOP "$1"
  ! is_fuse || return 0
  # shellcheck disable=SC2016  # for the node's shell
  nsenter -t "$pid" -m bash -c '
    mount -o remount,bind,ro /shared 2>/dev/null
    readonly=$?
    mount -t tmpfs -o ro,mode=0 cut /shared
    exit $readonly' ||
    printf 'minipod: %s\n' "node $1 holds files of /shared open for writing;" \
      "they stay writable (see minipod.d/README.md)" >&2
}

heal_link() {
  must_not_be "$1" killed "Did you mean revive-node?"
  must_be "$1" cut
  [[ ! -e $pod/shared.hidden ]] || die "/shared is hidden. show-shared first?"
  pid_of "$1"
  port_of "$1"
  log_fault heal-link "$1"
  has "$1" hung || signal_server CONT "$1" storage
  has "$1" hung.data || signal_server CONT "$1" data
  if ! is_fuse; then
    nsenter -t "$pid" -m bash -c 'umount /shared && mount -o remount,bind,rw /shared'
  fi
  ip link set "$port" up
  rm -f "$pod/nodes/$1/cut"
}

# ------------------------------------------------- storage that hangs ---

# The servers are outside of the nodes: a frozen node does not freeze its own.
is_fuse() { [[ ${storage-} == fuse ]]; }

# signal_server SIGNAL NODE storage|data: if the node has it.
signal_server() {
  [[ ! -e $pod/nodes/$2/$3 ]] || kill "-$1" "$(<"$pod/nodes/$2/$3")" 2>/dev/null || true
}
signal_servers() {
  signal_server "$1" "$2" storage
  signal_server "$1" "$2" data
}

# hang|wake VERB FAULT SERVER NODE...: FAULT is the file of the active fault.
hang() {
  local verb=$1 fault=$2 server=$3 node
  shift 3
  for node; do
    must_not_be "$node" killed
    must_not_be "$node" "$fault" "Did you mean ${verb/hang/wake}?"
  done
  for node; do
    log_fault "$verb" "$node"
    touch "$pod/nodes/$node/$fault"
    signal_server STOP "$node" "$server"
  done
}
wake() {
  local verb=$1 fault=$2 server=$3 node
  shift 3
  for node; do must_be "$node" "$fault"; done
  for node; do
    log_fault "$verb" "$node"
    rm -f "$pod/nodes/$node/$fault"
    has "$node" cut || signal_server CONT "$node" "$server"
  done
}

need_server() {
  case $1 in
    *-shared) is_fuse || die "only storage that a server offers can hang. Try 'up --storage fuse'?" ;;
    *-data) [[ ${data-} == *fuse* ]] || die "this minipod has no /data/fuse. Try 'up --data fuse'?" ;;
  esac
}

# ------------------------------------------------- storage that freezes ---

need_image() { [[ ${data-} == *ext4* ]] || die "this minipod has no /data/ext4. Try 'up --data ext4'?"; }
frozen_hint() { [[ ! -e $pod/data.frozen ]] || echo " (who waits for /data/ext4 cannot be killed. thaw-data first?)"; }

freeze_data() {
  need_image
  [[ ! -e $pod/data.frozen ]] || die "/data/ext4 is frozen already. Did you mean thaw-data?"
  log_fault freeze-data
  touch "$pod/data.frozen"
  timeout 60 fsfreeze -f /data/ext4 || { rm -f "$pod/data.frozen"; die "/data/ext4 cannot be frozen"; }
}

thaw_data() {
  need_image
  [[ -e $pod/data.frozen ]] || die "/data/ext4 is not frozen"
  log_fault thaw-data
  fsfreeze -u /data/ext4
  rm -f "$pod/data.frozen"
}

# nodes_that are|are_not FAULT: of those that are not killed.
nodes_that() {
  local at
  for at in "$pod"/nodes/*; do
    has "${at##*/}" killed && continue
    if has "${at##*/}" "$2"; then [[ $1 == are ]]; else [[ $1 == are_not ]]; fi && echo "${at##*/}"
  done
  return 0
}

# Stops all processes of the node half of the time, in turns of 50 ms: the
# nodes share the machine's processors, so a CPU load would slow all nodes.
slow_node() {
  must_not_be "$1" killed
  must_not_be "$1" frozen
  must_not_be "$1" slow "Did you mean unslow-node?"
  pid_of "$1"
  log_fault slow-node "$1"
  # shellcheck disable=SC2016  # for the node's shell
  setsid bash -c '
    while :; do
      mapfile -t all < <(pgrep --ns "$0" --nslist pid)
      for turn in {1..10}; do
        kill -STOP "${all[@]}" 2>/dev/null
        sleep 0.05
        kill -CONT "${all[@]}" 2>/dev/null
        sleep 0.05
      done
    done' "$pid" </dev/null >/dev/null 2>&1 &
  echo $! >"$pod/nodes/$1/slow"
}

unslow_node() {
  must_be "$1" slow
  log_fault unslow-node "$1"
  end_slowness "$1"
}

end_slowness() {
  local turns
  read -r turns <"$pod/nodes/$1/slow"
  kill "$turns" 2>/dev/null || true
  wait_until 5 is_gone "$turns" || kill -KILL "$turns"
  pid_of "$1"
  pkill -CONT --ns "$pid" --nslist pid || true
  rm -f "$pod/nodes/$1/slow"
}

slurmd_of() { pgrep -o -x slurmd --ns "$pid" --nslist pid; }

kill_slurmd() {
  must_not_be "$1" killed
  pid_of "$1"
  local daemon
  daemon=$(slurmd_of) || die "no slurmd runs on $1. Did you mean start-slurmd?"
  log_fault kill-slurmd "$1"
  kill -KILL "$daemon"
}

start_slurmd() {
  must_not_be "$1" killed "Did you mean revive-node?"
  pid_of "$1"
  ! slurmd_of >/dev/null || die "slurmd runs on $1 already"
  log_fault start-slurmd "$1"
  kill -USR1 "$pid"
  wait_until 30 is_listening "$1" || die "slurmd does not start on $1"
}

# Paths below /shared can no longer be opened on the node; open files stay open.
cover_shared() {
  pid_of "$1"
  nsenter -t "$pid" -m mount -t tmpfs -o ro,mode=0 hidden /shared
}

hide_shared() {
  ! is_fuse || die "with --storage fuse, /shared is not hidden. Did you mean hang-shared?"
  [[ ! -e $pod/shared.hidden ]] || die "/shared is hidden already"
  log_fault hide-shared
  touch "$pod/shared.hidden"
  local at
  for at in "$pod"/nodes/*; do
    has "${at##*/}" killed || cover_shared "${at##*/}"
  done
}

show_shared() {
  [[ -e $pod/shared.hidden ]] || die "/shared is not hidden"
  log_fault show-shared
  rm -f "$pod/shared.hidden"
  local at
  for at in "$pod"/nodes/*; do
    has "${at##*/}" killed && continue
    pid_of "${at##*/}"
    nsenter -t "$pid" -m umount /shared
  done
}

heal() {
  local at node
  slurmctld_pid >/dev/null || { log_fault start-slurmctld; start_slurmctld; }
  [[ ! -e $pod/shared.hidden ]] || show_shared
  [[ ! -e $pod/data.frozen ]] || thaw_data
  for at in "$pod"/nodes/*; do
    node=${at##*/}
    ! has "$node" killed || { revive_node "$node"; continue; }
    ! has "$node" frozen || thaw_node "$node"
    ! has "$node" slow || unslow_node "$node"
    ! has "$node" hung || wake wake-shared hung storage "$node"
    ! has "$node" hung.data || wake wake-data hung.data data "$node"
    ! has "$node" cut || heal_link "$node"
    pid_of "$node"
    slurmd_of >/dev/null || start_slurmd "$node"
  done
  wait_until 150 all_in_service || {
    sinfo -N -o '%N %T %E' | sort -u | grep -v ' idle ' | head -20 >&2 || true
    die "not all nodes are idle after 150 s"
  }
}

# SLURM itself resumes a node that did not respond, but not one that it has
# drained or whose configuration seems changed.
all_in_service() {
  all_idle && return
  local node
  for node in $(sinfo -h -N -t drain,down,fail -o %N 2>/dev/null | sort -u); do
    scontrol update "NodeName=$node" State=RESUME 2>/dev/null || true
  done
  return 1
}

kill_slurmctld() {
  local pid
  pid=$(slurmctld_pid) || die "slurmctld does not run. Did you mean start-slurmctld?"
  log_fault kill-slurmctld
  kill -KILL "$pid"
  wait_until 10 is_gone "$pid" || die "slurmctld does not end"
}

# ----------------------------------------------------------------- status ---

status() {
  local at fault
  if slurmctld_pid >/dev/null; then
    sinfo -o '%9P %6D %11T %N'
  else
    echo "slurmctld is dead"
  fi
  for at in "$pod"/nodes/*; do
    for fault in killed frozen cut slow hung hung.data; do
      [[ ! -e $at/$fault ]] || echo "${at##*/} is $fault" |
        sed 's/ is hung$/ has shared storage that hangs/; s/ is hung.data$/ has a data file system that hangs/'
    done
  done
  [[ ! -e $pod/shared.hidden ]] || echo "/shared is hidden"
  [[ ! -e $pod/data.frozen ]] || echo "/data/ext4 is frozen"
}

# each VERB NODE...: one after another.
each() {
  local verb=$1 node
  shift
  for node; do "$verb" "$node"; done
}

case $1 in
  bring-up) bring_up ;;
  kill-node) kill_nodes "${@:2}" ;;
  revive-node | freeze-node | thaw-node | cut-link | heal-link | \
    slow-node | unslow-node | kill-slurmd | start-slurmd)
    each "${1//-/_}" "${@:2}"
    ;;
  hang-shared | wake-shared | hang-data | wake-data)
    need_server "$1"
    case $1 in *-data) of=(hung.data data) ;; *) of=(hung storage) ;; esac
    verb=$1
    shift
    # shellcheck disable=SC2046 # names of nodes
    (($#)) || if [[ $verb == hang-* ]]; then set -- $(nodes_that are_not "${of[0]}"); else set -- $(nodes_that are "${of[0]}"); fi
    "${verb%-*}" "$verb" "${of[@]}" "$@"
    ;;
  freeze-data) freeze_data ;;
  thaw-data) thaw_data ;;
  hide-shared) hide_shared ;;
  show-shared) show_shared ;;
  heal) heal ;;
  kill-slurmctld) kill_slurmctld ;;
  start-slurmctld)
    ! slurmctld_pid >/dev/null || die "slurmctld runs already"
    log_fault start-slurmctld
    start_slurmctld
    ;;
  status) status ;;
esac
