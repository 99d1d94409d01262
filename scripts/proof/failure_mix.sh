#!/usr/bin/env bash
# What the 419 unexpected interruptions of Llama 3's pre-training (54 days, 16,384 GPUs) would cost a run, with and without
# spares: production's decisions in the simulator around each of them, arithmetic between them. About a minute of one core.
#   scripts/proof/failure_mix.sh BUILD [SEED]   the last line is RESULT {json}
set -euo pipefail
(($# >= 1)) || { sed -n '2,4s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2; }
exec "$1/tests/sim/failure_mix" "${2:-1}"
