#!/usr/bin/env bash
# However one rank ends, the others end too, soon, and nothing of them is left. Speaks TAP.
#   ends_test.sh COMM_BAD_END MPIEXEC
# shellcheck disable=SC2317 # check calls the functions
set -uo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/support/tap.sh
source "$source/tests/support/tap.sh"
program=$1
start=("$2" -n 3 --oversubscribe --bind-to none)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1
folder=$(mktemp -d "${TMPDIR:-/tmp}/hf-ends.XXXXXX")
export OMPI_MCA_orte_tmpdir_base=$folder # one that two tests make at once is an error
trap 'rm -rf "$folder"' EXIT

# ends HOW [TEXT]: the job fails, before anything that waits for it would, and says TEXT.
ends() {
  local said status=0
  rm -rf "${folder:?}/$1"
  mkdir "$folder/$1"
  said=$(timeout 20 "${start[@]}" "$program" "$1" "$folder/$1" 2>&1) || status=$?
  ((status != 0 && status != 124)) || { printf 'status %s: %s\n' "$status" "$said"; return 1; }
  [[ $# -lt 2 || $said == *"$2"* ]] || { printf '%s\n' "$said"; return 1; }
}
# Which barrier it is, is of no interest.
records() { "$program" read "$folder/$1" | sed 's/#[0-9]*/#N/'; }

check "abort ends all" ends abort "this rank ends all ranks: the test wants it"
check "abort ends all though the communication thread is held" ends held
check "an exception ends all" ends exception
check "a killed rank ends all" ends kill
check "the records of the others and of the dead say who was missing" \
  equal "$(records kill)" "rank 1 has not entered barrier #N of the world, in which ranks 0, 2 wait"
check "a time-out says who was missing and what the record says" ends timeout "(rank 1 has not arrived)"
check "and so do the records" \
  equal "$(records timeout)" "rank 1 has not entered barrier #N of the world, in which ranks 0, 2 wait"
check "no process is left" equal "$(pgrep -f "^$program [a-z]* $folder/")" ""
conclude
