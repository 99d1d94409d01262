#!/usr/bin/env bash
# Capture what SLURM's tools say of accounts and limits, for releases_test.cpp: capture_accounts.sh FOLDER [WORD...]
# As capture.sh, on a minipod with slurmdbd. Every reply is that of a command line of slurm/accounts.cpp.
set -euo pipefail
pod_options=(--nodes 2 --profile accounting)
# shellcheck source=tests/slurm/capture_pod.sh
source "$(dirname "${BASH_SOURCE[0]}")/capture_pod.sh"

admin() { "$pod" exec --root sacctmgr --immediate --quiet "$@" >/dev/null; }
admin add account science Description=science Organization=minipod GrpTRES=node=8
admin add account physics Description=physics Organization=minipod parent=science GrpTRES=node=2
admin add qos short MaxWall=00:10:00 MaxTRESPerUser=node=1 MaxJobsPerUser=3
admin add qos strict MaxWall=00:10:00 Flags=DenyOnLimit
admin add user holdfast Account=physics QOS=low,short,strict DefaultQOS=low MaxJobs=2 MaxWall=1-12:00:00
script=$HOLDFAST_MINIPOD_DIR/shared/home/job.sh
printf '%s\n' '#!/bin/sh' 'sleep 600' >"$script"
chmod 0755 "$script"
running=$(mini sbatch --parsable -A physics -N1 --exclusive --time=60 --output=/dev/null /shared/home/job.sh)
runs() { [[ $(mini squeue -h -j "$running" -o %T) == RUNNING ]]; }
soon 60 runs

keep associations.txt scontrol show assoc_mgr users=holdfast flags=assoc
sacctmgr=(sacctmgr --noheader --parsable2 --readonly show)
keep qos_of_associations.txt "${sacctmgr[@]}" associations where user=holdfast cluster=minipod format=Account,QOS
keep qos_limits.txt "${sacctmgr[@]}" qos where name=high,low,short,strict \
  format=Name,GrpJobs,GrpSubmit,GrpTRES,GrpTRESMins,GrpWall,MaxJobsPU,MaxSubmitPU,MaxTRES,MaxTRESPU,MaxWall,MinTRES

: >"$folder/errors_of_accounts.txt"
says() { # EXIT_CODE_OF_HOLDFAST COMMAND...
  printf '## %s %s\n' "$1" "${*:2}" >>"$folder/errors_of_accounts.txt"
  mini "${@:2}" >/dev/null 2>>"$folder/errors_of_accounts.txt" || true
}
says usage sbatch -A nowhere /shared/home/job.sh
says usage sbatch -q nosuch /shared/home/job.sh
says usage sbatch -A users -q short /shared/home/job.sh
says impossible sbatch -A physics -q strict -t 60 /shared/home/job.sh
admin modify user where name=holdfast account=physics set MaxSubmitJobs=1
says impossible sbatch -A physics /shared/home/job.sh
