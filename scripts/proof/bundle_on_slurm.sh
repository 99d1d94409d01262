#!/usr/bin/env bash
# shellcheck disable=SC2317 # check calls most functions
# A bundle on the SLURM, C library, Open MPI and PMIx of another system: its runs end in the bits of a run of the build on this
# machine, one that loses a node and one that srun starts, too; and a program of that system's Open MPI loses a node and goes on,
# served by the bundle's PMIx server. As root; two minutes.
#   scripts/minipod_root.sh trixie ROOT
#   scripts/proof/bundle_on_slurm.sh BUILD ROOT
# ROOT stays as it is: the compiler for the program is installed beside it, and removed.
set -uo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=scripts/common.sh
source "$source/scripts/common.sh"
# shellcheck source=tests/support/tap.sh
source "$source/tests/support/tap.sh"
[[ $# -eq 2 && -f $1/CMakeCache.txt && -f $2/slurm-release ]] || die "usage: scripts/proof/bundle_on_slurm.sh BUILD ROOT"
((EUID == 0)) || die "systems in folders can be entered by root alone. Become root first?"
build=$(realpath "$1") root=$(realpath "$2")
work=$(mktemp -d /var/tmp/holdfast-proof.XXXXXX)
HOLDFAST_MINIPOD_DIR=$work/pod
export HOLDFAST_MINIPOD_DIR
# shellcheck source=tests/support/pod.sh
source "$source/tests/support/pod.sh"
trap '"$pod" down --purge >/dev/null 2>&1; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
echo "# here: C library $(getconf GNU_LIBC_VERSION), $(sinfo --version 2>/dev/null || dpkg-query -W slurmctld)"
echo "# $root: $(<"$root/slurm-release"), C library $(chroot "$root" getconf GNU_LIBC_VERSION)"

check "a bundle can be made" "$source/scripts/bundle.sh" "$build" "$work/holdfast.tar.gz"
two_nodes=(--set cluster.nodes=2 --set cluster.spares=0)

mini up --nodes 2 || { echo "Bail out! no minipod"; exit 1; }
install_programs "$build"/{launcher/holdfast,src/train/holdfast-train,src/tools/cli/holdfast-tool}
make_tokens
submit here "${two_nodes[@]}" >/dev/null
check "a run of the build ends on this machine's SLURM" soon 240 over here
digest=$(result here .state_digest)
cp "$home/tokens.bin" "$work/tokens.bin"
mini down --purge
mkdir -p "$work/made"

# The program, where the system's own compiler is.
cat >"$work/made/sums.c" <<'END'
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv) {
  int rank, size, version_length;
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Get_library_version(version, &version_length);
  if (rank == 0) printf("begun with %d ranks, %.16s\n", size, version), fflush(stdout);
  const double begin = MPI_Wtime(), seconds = atof(argv[1]);
  for (int over = 0; !over; usleep(10000)) {
    long sum = 0, mine = rank;
    MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (sum != (long)size * (size - 1) / 2) return 9;
    over = MPI_Wtime() - begin > seconds;
    MPI_Bcast(&over, 1, MPI_INT, 0, MPI_COMM_WORLD);  // rank 0 decides for all
  }
  if (rank == 0) printf("all sums were right\n");
  return MPI_Finalize();
}
END
compiled() {
  # shellcheck disable=SC2016 # for the inner shell
  unshare --mount --propagation private sh -euc 'cd "$1"; mkdir up work all
    mount -t overlay overlay -o "lowerdir=$2,upperdir=$1/up,workdir=$1/work" all
    mount -t proc proc all/proc
    cp sums.c all/root/
    chroot all sh -euc "apt-get -qq update
      DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends -y gcc libc6-dev libopenmpi-dev
      mpicc -o /root/sums /root/sums.c"
    cp all/root/sums .' sh "$work/made" "$root"
}
check "a program is built with the system's Open MPI" compiled

mini up --nodes 3 --root "$root" || { echo "Bail out! no minipod"; exit 1; }
mkdir -p "$dir/shared/opt/holdfast"
tar -xzf "$work/holdfast.tar.gz" -C "$dir/shared/opt/holdfast" --strip-components=1
install -o 61000 -m 0644 "$work/tokens.bin" "$home/tokens.bin"
install -m 0755 "$work/made/sums" "$home/sums"
echo "# the bundle's programs use $(mini exec sh -c 'LD_TRACE_LOADED_OBJECTS=1 holdfast-train' | grep -oE '/[^ ]*/libc\.so\.6')"

submit_held lost --set cluster.nodes=2 --set cluster.spares=1 >/dev/null
check "a run of the bundle trains there" soon 120 training lost 1
((failed == 0)) || { show_record lost; conclude; }
mini kill-node "$(placement lost | tail -n 1)"
check "it goes on when a node is lost" soon 120 training lost 2
let_go lost
check "it ends" soon 240 over lost
check "in the same bits" equal "$(result lost .state_digest)" "$digest"
over lost || show_record lost
mini heal

from_srun() {
  timeout 120 "$pod" exec --chdir /shared/home srun --mpi=pmix --nodes 2 --ntasks-per-node 2 holdfast-train job.toml \
    --set data.tokens=/shared/home/tokens.bin --set model.file=/shared/home/model.toml --set "train.steps=$test_steps" \
    --run-dir /shared/home/from_srun
}
check "srun starts its ranks, too" from_srun
check "in the same bits" equal "$(result from_srun .state_digest)" "$digest"

cat >"$home/sums.toml" <<'END'
[run]
name = "sums"
dir = "/shared/home/sums_run"
[cluster]
file = "minipod"
nodes = 2
spares = 1
ranks_per_node = 2
[rank]
command = ["/shared/home/sums", "8"]
launch = "mpi"
END
chown 61000 "$home/sums.toml"
mini exec --chdir /shared/home holdfast submit sums.toml --parsable >/dev/null
begun() { grep -q 'begun with 4 ranks' "$home"/sums_run/logs/attempt-"$1"/rank-00000.log; }
check "ranks of the system's Open MPI start" soon 60 begun 0001
mini kill-node "$(placement sums_run | tail -n 1)"
check "and again when a node is lost" soon 60 begun 0002
check "to the end" soon 60 over sums_run
check "with sums that are right" soon 20 grep -q "all sums were right" "$home"/sums_run/logs/attempt-0002/rank-00000.log
tail -n 2 "$home"/sums_run/logs/attempt-0002/rank-00000.log | sed 's/^/# /'
check "with exit code 0" equal "$(result sums_run .exit_code)" 0
((failed == 0)) || { show_record sums_run; cat "$home"/sums_run/result.json; } | sed "s/^/# /"
conclude
