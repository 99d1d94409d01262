#!/usr/bin/env bash
# The direction of dependency: print every include edge between folders, and fail on one that the table does not have.
# Also: who may name SLURM, include HDF5, MPI or CUDA, and read the environment.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# folder: what it may include. A row names only rows above it, so nothing can turn round.
table='
client:
src/base:
src/bundle: src/base
src/flight: src/base
src/nvml: src/base
src/command_line: src/base
src/config: src/base
src/control: src/flight src/base
src/snapshot: client src/base
slurm: src/base
src/tensor: src/base
src/kernels: src/tensor src/base
src/comm: src/flight src/tensor src/base
src/device: src/comm src/kernels src/tensor src/flight src/base
src/cuda/runtime: src/device src/tensor src/nvml src/base
src/cuda/gemm: src/cuda/runtime src/kernels src/base
src/cuda/attention: src/cuda/runtime src/kernels src/base
src/cuda/comm: src/cuda/runtime src/comm src/flight src/base
src/cuda/simt: src/cuda/runtime src/kernels src/tensor src/base
src/cuda/kernels: src/cuda/simt src/cuda/runtime src/kernels src/tensor src/base
src/cuda/device: src/cuda/kernels src/cuda/gemm src/cuda/attention src/cuda/comm src/cuda/runtime src/device src/kernels src/base
src/shard: src/comm src/kernels src/tensor src/config src/base
src/model: src/kernels src/tensor src/config src/base
src/data: src/base
src/optim: src/shard src/comm src/kernels src/tensor src/config src/base
checkpoint/index: src/snapshot src/base
checkpoint/io: checkpoint/index src/base
checkpoint/shards: checkpoint/io checkpoint/index src/base
checkpoint/verify: checkpoint/shards checkpoint/io checkpoint/index src/base
checkpoint/exchange: checkpoint/shards checkpoint/io checkpoint/index src/base
src/weights: checkpoint/exchange checkpoint/shards checkpoint/io checkpoint/index src/config src/base
src/preflight: src/weights checkpoint/index src/data src/config src/base
client:
src/train/common: client src/comm src/control src/config src/base
src/train/state: src/train/common checkpoint/index src/shard src/device src/comm src/config src/base
src/train/local: src/train/state src/train/common checkpoint/index src/optim src/model src/shard src/device src/comm src/tensor src/control src/config src/snapshot src/base
src/train/engine: src/train/local src/train/state src/train/common src/weights checkpoint/index src/optim src/data src/model src/shard src/device src/comm src/kernels src/tensor src/control src/config src/base
src/train/save: src/train/local src/train/state src/train/common checkpoint/shards checkpoint/index src/shard src/comm src/control src/config src/base
src/train/restore: src/train/engine src/train/local src/train/state src/train/common src/preflight checkpoint/shards checkpoint/index src/shard src/comm src/config src/snapshot src/base
src/train/loop: src/train/restore src/train/save src/train/engine src/train/local src/train/state src/train/common src/preflight checkpoint/index src/optim src/data src/device src/comm src/tensor src/control src/config src/flight src/base
src/tools/text: src/data src/base
src/tools/chat: src/tools/text src/base
src/tools/corpus: src/tools/chat src/tools/text src/data src/base
src/tools/infer: src/tools/text checkpoint/index src/data src/model src/kernels src/tensor src/config src/base
src/tools/cli: slurm src/command_line src/tools/infer src/tools/corpus src/tools/chat src/tools/text src/weights checkpoint/exchange checkpoint/verify checkpoint/io checkpoint/index src/data src/kernels src/control src/config src/snapshot src/base
launcher/foresee: src/config src/base
launcher/plan: launcher/foresee slurm src/config src/base
launcher/diagnose: src/control src/base
launcher/health: slurm src/control src/config src/nvml src/base
launcher/record: src/base
launcher/supervise: launcher/record launcher/diagnose launcher/plan src/control src/config src/snapshot src/flight src/base
launcher/agent/signs: launcher/diagnose src/control src/config src/nvml src/base
launcher/pmix: src/control src/base
launcher/agent/mover: src/control src/snapshot src/base
launcher/agent/ranks: launcher/pmix launcher/supervise src/nvml src/control src/config src/flight src/base
launcher/agent/leader: launcher/agent/ranks launcher/supervise launcher/diagnose launcher/record slurm checkpoint/index src/control src/config src/base
launcher/agent/daemon: launcher/pmix launcher/agent/leader launcher/agent/mover launcher/agent/ranks launcher/agent/signs launcher/supervise slurm src/control src/config src/base
launcher/report: launcher/supervise launcher/record slurm src/config src/base
launcher/job: launcher/report launcher/agent/signs launcher/agent/ranks launcher/supervise launcher/record launcher/plan slurm src/preflight checkpoint/index src/control src/config src/base
launcher/drill: launcher/supervise launcher/record slurm src/config src/base
launcher/watch: launcher/report launcher/supervise launcher/record slurm src/control src/base
launcher/sinks: launcher/supervise checkpoint/io src/base
launcher/cli: src/command_line launcher/health launcher/watch launcher/report launcher/sinks launcher/drill launcher/job launcher/agent/daemon launcher/agent/ranks launcher/supervise launcher/record launcher/plan checkpoint/index slurm src/preflight src/control src/config src/base
'
sits_on_hdf5='checkpoint/shards/h5.hpp checkpoint/shards/h5.cpp' # these may include it; others go through them

mapfile -t sources < <(find src slurm launcher checkpoint -name '*.cpp' -o -name '*.hpp' -o -name '*.cu' | sort)
status=0
complain() { printf 'WRONG: %s\n' "$*"; status=1; }

# file:line:what for every quoted include
edges=$(grep -HnE '^#include "' "${sources[@]}" | sed -E 's/^([^:]+):([0-9]+):#include "([^"]+)".*/\1 \2 \3/' |
  awk -v table="$table" '
    function folder(path) {
      sub(/\/[^\/]*$/, "", path)
      return path
    }
    BEGIN {
      rows = split(table, lines, "\n")
      for (i = 1; i <= rows; ++i) {
        if (split(lines[i], row, ":") < 2) continue
        known[row[1]] = 1
        count = split(row[2], targets, " ")
        for (j = 1; j <= count; ++j) {
          if (!(targets[j] in known)) print "WRONG: the table turns round: " row[1] " names " targets[j]
          allowed[row[1], targets[j]] = 1
        }
      }
    }
    {
      from = folder($1); to = folder($3)
      if (from == to) next
      ++uses[from " -> " to]
      if (!((from, to) in allowed)) print "WRONG: " $1 ":" $2 " includes " $3 " (" from " may not include " to ")"
    }
    END { for (edge in uses) printf "%s (%d)\n", edge, uses[edge] }' | sort)
printf '%s\n' "$edges"
[[ $edges != *WRONG:* ]] || status=1

# Code without its comments, as file:line:text.
code=$(awk '{
    line = $0
    if (in_comment) { if (!sub(/^.*\*\//, "", line)) next; in_comment = 0 }
    gsub(/\/\*[^*]*\*\//, "", line)
    if (sub(/\/\*.*$/, "", line)) in_comment = 1
    sub(/(^|[^:"])\/\/.*$/, "", line)
    if (line != "") print FILENAME ":" FNR ":" line
  }' "${sources[@]}")

# only WHO PATTERN WHAT: lines of code that match PATTERN must be in files that match WHO
only() {
  local hits
  hits=$(grep -E "^[^:]+:[0-9]+:.*$2" <<<"$code" | grep -vE "^($1)" || true)
  [[ -z $hits ]] || while read -r hit; do complain "$hit ($3)"; done <<<"$hits"
}
only 'slurm/' '"([^"]*\bSLURM_|(srun|sbatch|scontrol|squeue|sinfo|scancel|sacct)[ "])' 'only slurm/ names a SLURM variable or tool'
only "${sits_on_hdf5// /:|}:" '#include <(hdf5|H5)' 'only checkpoint/shards/h5.* includes HDF5'
only 'src/comm/mpi' '#include <mpi' 'only src/comm/mpi* includes MPI'
only 'launcher/pmix/pmix_server' '#include <pmix' 'only launcher/pmix/pmix_server.cpp includes PMIx'
only 'src/cuda/comm/real_nccl' '#include <nccl' 'only src/cuda/comm/real_nccl.cpp includes NCCL'
only 'src/cuda/' '#include <(cuda|cublas|cudnn|nvml)' 'only src/cuda/ includes CUDA and its libraries'
only 'src/comm/ucx' '#include <uc[pst]/' 'only src/comm/ucx* includes UCX'
only 'src/base/env\.' '\b(secure_)?getenv *\(' 'only src/base/env.* reads the environment'

((status == 0)) && echo "all edges point one way"
exit "$status"
