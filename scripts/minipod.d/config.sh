#!/usr/bin/env bash
# Write every configuration file of a minipod: config.sh DIR.
# They are derived from DIR/shape; the paths in them are those that the daemons see.

set -euo pipefail
# shellcheck source=scripts/minipod.d/net.sh
source "$(dirname "${BASH_SOURCE[0]}")/net.sh"

dir=$1
# nodes=N gpus=G su=N slurmd_timeout=S [node_conf=KEY=VALUE,...] [profile=NAME] [ipv6=yes] [spank=FILE]
read -r -a shape <"$dir/shape"
declare -i nodes gpus su slurmd_timeout
node_conf='' profile=plain ipv6='' spank=''
declare "${shape[@]}"
[[ -z $ipv6 ]] || use_ipv6

etc=$dir/etc
name_of "$nodes"
all="dgx[001-${name#dgx}]"
cores=$((gpus > 8 ? 2 * gpus : 16)) sockets=2
memory=65536
tracking=(ProctrackType=proctrack/linuxproc TaskPlugin=task/none)
accounting=(JobAcctGatherType=jobacct_gather/none AccountingStorageType=accounting_storage/none)
extra=()
[[ -z $ipv6 ]] || extra+=("CommunicationParameters=EnableIPv6,DisableIPv4")
case $profile in
  cgroup) # cores are real ones then, which all nodes share
    tracking=(ProctrackType=proctrack/cgroup "TaskPlugin=task/cgroup,task/affinity")
    cores=$(nproc) sockets=1
    ;;
  reserved) node_conf=${node_conf:+$node_conf,}CPUs=$((2 * cores)),ThreadsPerCore=2,CoreSpecCount=2,MemSpecLimit=4096 ;;
  private) extra+=(JobContainerType=job_container/tmpfs PrologFlags=Contain) ;;
  prolog) extra+=(Prolog=/etc/slurm/prolog.sh PrologFlags=Alloc) ;;
  limited) extra+=(SlurmctldParameters=rl_enable) ;;
  accounting)
    accounting=(JobAcctGatherType=jobacct_gather/linux AccountingStorageType=accounting_storage/slurmdbd AccountingStorageHost=login
      "AccountingStorageEnforce=associations,limits,qos")
    extra+=(PreemptType=preempt/qos PreemptMode=REQUEUE)
    ;;
esac

slurm_conf() {
  cat <<CONF
ClusterName=minipod
SlurmctldHost=login($login_addr)
SlurmUser=slurm
AuthType=auth/munge
CredType=cred/munge
StateSaveLocation=/run/slurmctld/state
SlurmctldPidFile=/run/slurmctld/slurmctld.pid
SlurmctldLogFile=/run/slurmctld/slurmctld.log
SlurmdSpoolDir=/run/slurmd/spool
SlurmdPidFile=/run/slurmd/slurmd.pid
SlurmdLogFile=/run/slurmd/slurmd.log
SlurmdTimeout=$slurmd_timeout
SlurmctldTimeout=120
ReturnToService=2
JobRequeue=1
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
# The nodes are configured larger than the machine.
SlurmdParameters=config_overrides
TopologyPlugin=topology/tree
CONF
  printf '%s\n' "${tracking[@]}" "${accounting[@]}" "${extra[@]}"
  local gres=''
  if ((gpus > 0)); then
    echo "GresTypes=gpu"
    gres=" Gres=gpu:h100:$gpus"
  fi
  echo "NodeName=$all CPUs=$cores Boards=1 SocketsPerBoard=$sockets" \
    "CoresPerSocket=$((cores / sockets)) ThreadsPerCore=1" \
    "RealMemory=$memory State=UNKNOWN$gres ${node_conf//,/ }"
  echo "PartitionName=pod Nodes=$all Default=YES MaxTime=INFINITE" \
    "DefaultTime=INFINITE State=UP"
}

topology_conf() {
  local unit=0 first last
  for ((first = 1; first <= nodes; first += su)); do
    unit=$((unit + 1))
    last=$((first + su - 1 < nodes ? first + su - 1 : nodes))
    printf 'SwitchName=su%d Nodes=dgx[%03d-%03d]\n' "$unit" "$first" "$last"
  done
  printf 'SwitchName=pod Switches=su[1-%d]\n' "$unit"
}

gres_conf() {
  echo "AutoDetect=off"
  ((gpus == 0)) ||
    echo "NodeName=$all Name=gpu Type=h100 File=/dev/minipod/gpu[0-$((gpus - 1))]"
}

mpi_conf() {
  echo "PMIxCliTmpDirBase=/dev/shm"
}

# The base is on the node's own disk. What a job has in /tmp is in DIR/nodes/NAME/jobs while it runs.
job_container_conf() {
  printf '%s\n' AutoBasePath=true BasePath=/run/slurmd/jobs
}

slurmdbd_conf() {
  cat <<'CONF'
DbdHost=login
SlurmUser=slurm
AuthType=auth/munge
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StorageLoc=accounting
PidFile=/run/accounting/slurmdbd.pid
LogFile=/run/accounting/slurmdbd.log
CONF
}

# The plug-in is named so that slurmd does not search the mounts.
cgroup_conf() {
  echo "CgroupPlugin=cgroup/v1"
  [[ $profile != cgroup ]] || printf '%s\n' CgroupMountpoint=/sys/fs/cgroup ConstrainCores=yes ConstrainDevices=yes
}

prolog_script() {
  printf '%s\n' '#!/bin/sh' 'sleep 60'
}

# Addresses of the login host and of all nodes: as /etc/hosts, and as
# permanent neighbours. Asking for addresses (ARP) would need N * N entries of
# a table that all namespaces of the machine share and that holds 1024.
address_files() {
  local i
  {
    echo "127.0.0.1 localhost"
    [[ -z $ipv6 ]] || echo "::1 localhost"
    echo "$login_addr login"
  } >"$etc/hosts"
  : >"$etc/neighbours"
  echo "neigh replace $login_addr lladdr $login_mac dev eth0 nud permanent" \
    >>"$etc/neighbours"
  for ((i = 1; i <= nodes; i++)); do
    name_of "$i"
    addr_of "$i"
    mac_of "$i"
    echo "$addr $name" >>"$etc/hosts"
    echo "neigh replace $addr lladdr $mac dev eth0 nud permanent" \
      >>"$etc/neighbours"
  done
}

slurm_conf >"$etc/slurm/slurm.conf"
topology_conf >"$etc/slurm/topology.conf"
gres_conf >"$etc/slurm/gres.conf"
mpi_conf >"$etc/slurm/mpi.conf"
cgroup_conf >"$etc/slurm/cgroup.conf"
[[ $profile != private ]] || job_container_conf >"$etc/slurm/job_container.conf"
if [[ $profile == accounting ]]; then
  (umask 077; slurmdbd_conf >"$etc/slurm/slurmdbd.conf") # slurmdbd refuses a file that others can read
fi
if [[ $profile == prolog ]]; then
  prolog_script >"$etc/slurm/prolog.sh"
  chmod 0755 "$etc/slurm/prolog.sh"
fi
if [[ -n $spank ]]; then
  install -m 0644 "$spank" "$etc/slurm/spank.so"
  echo "required /etc/slurm/spank.so" >"$etc/slurm/plugstack.conf"
fi
address_files
echo "$dir" >"$etc/dir"
