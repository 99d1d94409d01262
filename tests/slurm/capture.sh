#!/usr/bin/env bash
# Capture the replies of SLURM's tools that releases_test.cpp reads: capture.sh FOLDER [WORD...]
# FOLDER: tests/slurm/captured/RELEASE. The words are for `minipod up`, such as --root DIR. Every reply is that of a command line of
# slurm/commands.cpp or slurm/site.cpp.
set -euo pipefail
pod_options=(--nodes 4)
# shellcheck source=tests/slurm/capture_pod.sh
source "$(dirname "${BASH_SOURCE[0]}")/capture_pod.sh"

as_root() { "$pod" exec --root "$@"; }
sbatch() { mini sbatch --parsable --output=/dev/null "$@"; }
squeue=(squeue --noheader --all --states=all)
job() { keep "job_$1.txt" "${squeue[@]}" "--jobs=$2" '--format=%A|%T|%r|%N|%B|%e|%j'; }
nodes() { keep "nodes_$1.txt" sinfo --noheader --all --Node '--nodes=dgx[001-004]' '--format=%N|%T|%o|%E'; }
is() { [[ $(mini "${squeue[@]}" "--jobs=$1" --format=%T) == "$2" ]]; }
becomes() { soon 60 is "$@" || { echo "job $1 does not become $2" >&2; exit 1; }; }

keep version.txt sinfo --version
keep site_partitions.txt sinfo --noheader --all '--format=%P|%a|%l|%D|%N'
keep site_nodes.txt sinfo --noheader --all --Node '--format=%N|%P|%X|%Y|%Z|%m|%G|%T'
keep site_config.txt scontrol show config
keep site_topology.txt scontrol show topology
keep site_mpi.txt srun --mpi=list
nodes idle

script=$HOLDFAST_MINIPOD_DIR/shared/home/job.sh
printf '%s\n' '#!/bin/sh' 'sleep 600' >"$script"
chmod 0755 "$script"
# shellcheck disable=SC2016 # a name
sbatch --time=60 --exclusive -N2 --gres=gpu:8 --job-name='a b "q" $(x) |y' /shared/home/job.sh >"$folder/sbatch_parsable.txt"
running=$(<"$folder/sbatch_parsable.txt")
becomes "$running" RUNNING
job running "$running"
keep job_details.txt scontrol --details show job "$running"
waiting=$(sbatch --exclusive -N4 --job-name=waiting /shared/home/job.sh)
reason() { [[ $(mini "${squeue[@]}" "--jobs=$waiting" --format=%r) == Resources ]]; }
soon 60 reason
job pending "$waiting"
cancelled=$(sbatch --hold /shared/home/job.sh)
mini scancel "$cancelled"
becomes "$cancelled" CANCELLED
job cancelled "$cancelled"
keep jobs_by_script.txt squeue --noheader --all --me '--format=%A|%T|%o'
keep job_constraints.txt "${squeue[@]}" "--jobs=$running" '--format=%P|%x'
mini scontrol requeue "$running"
becomes "$running" PENDING
job requeued "$running"
mini scancel "$running" "$waiting"
failed_job=$(sbatch --exclusive -N1 --job-name=fails --wrap 'exit 9')
becomes "$failed_job" FAILED
job failed "$failed_job"
works=$(sbatch -N1 --job-name=works --wrap true)
becomes "$works" COMPLETED
job completed "$works"

# What `holdfast avail` asks for: dgx001 has a job, dgx003 is down, dgx004 is reserved.
present=$(sbatch --exclusive -w dgx001 /shared/home/job.sh)
becomes "$present" RUNNING
as_root scontrol update nodename=dgx003 state=down reason=gone
as_root scontrol create reservation ReservationName=course StartTime=now Duration=120 Nodes=dgx004 Users=holdfast
reserved() { [[ $(mini sinfo --noheader --Node --nodes=dgx004 --format=%T) == reserved ]]; }
soon 60 reserved
keep present_nodes.txt sinfo --noheader --Node '--format=%N|%P|%a|%l|%T|%G'
keep reservations.txt scontrol --oneliner show reservation
as_root scontrol delete ReservationName=course
as_root scontrol update nodename=dgx003 state=resume
mini scancel "$present"

as_root scontrol update nodename=dgx004 state=drain reason='so | said it'
as_root scontrol update nodename=dgx003 state=down reason=gone
nodes down

: >"$folder/errors.txt"
says() { # EXIT_CODE_OF_HOLDFAST COMMAND...
  printf '## %s %s\n' "$1" "${*:2}" >>"$folder/errors.txt"
  mini "${@:2}" >/dev/null 2>>"$folder/errors.txt" || true
}
says usage sbatch -p nopart /shared/home/job.sh
says usage sbatch -t garbage /shared/home/job.sh
says usage sbatch --nosuch /shared/home/job.sh
says usage sbatch nosuch.sh
says usage sbatch -C noconstr /shared/home/job.sh
says usage sbatch -w dgx009 /shared/home/job.sh
says usage sbatch --reservation=no /shared/home/job.sh
says impossible sbatch --gres=gpu:9 /shared/home/job.sh
says impossible sbatch -N0 /shared/home/job.sh
says usage squeue -j 99
says usage scontrol requeue 99
"$pod" kill-slurmctld
says transient sbatch /shared/home/job.sh
says transient squeue
says transient sinfo
says transient scancel 19
says transient srun --jobid=19 true
"$pod" start-slurmctld

# From 25.05 on a cluster may have several topologies; scontrol shows the default one, or the one named.
release=$(sed -E 's/.* ([0-9]+)\.([0-9]+).*/\1\2/' "$folder/version.txt")
((release >= 2505)) || exit 0
slurm=$HOLDFAST_MINIPOD_DIR/etc/slurm
rm "$slurm/topology.conf"
cat >"$slurm/topology.yaml" <<'YAML'
- topology: switches
  cluster_default: true
  tree:
    switches:
      - {switch: su1, nodes: "dgx[001-002]"}
      - {switch: su2, nodes: "dgx[003-004]"}
      - {switch: pod, children: "su[1-2]"}
- topology: blocks
  cluster_default: false
  block:
    block_sizes: [2, 4]
    blocks:
      - {block: b1, nodes: "dgx[001-002]"}
      - {block: b2, nodes: "dgx[003-004]"}
YAML
kinds=(blocks)
if ((release >= 2605)); then
  cat >>"$slurm/topology.yaml" <<'YAML'
- topology: rings
  cluster_default: false
  ring:
    rings:
      - {ring: r1, nodes: "dgx[001-004]"}
- topology: torus
  cluster_default: false
  torus3d:
    toruses:
      - {name: t1, dims: {x: 2, y: 2, z: 1}, nodes: "dgx[001-004]"}
YAML
  kinds+=(rings torus)
fi
"$pod" kill-slurmctld
"$pod" start-slurmctld
keep site_topology_several.txt scontrol show topology
for kind in "${kinds[@]}"; do keep "site_topology_$kind.txt" scontrol show topology "$kind"; done
