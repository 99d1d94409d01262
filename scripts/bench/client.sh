#!/usr/bin/env bash
# Nanoseconds of a call of the client (client/), in C and in Python, with an agent that listens and without one. "nothing" is
# the loop alone. Then seconds of sealing snapshot buffers of 1 GiB (8 GiB of /dev/shm), without a partner and with one, and of
# copying as much in memory. Then the movers' rate with 1 and 4 ranks of 256 MiB, and beside it that of the trainer's own
# exchange (PeerExchange), and of plain TCP: two movers in one process, two ranks of the exchange, all over loopback and on the
# cores of this machine. GBps: 10^9 bytes a second, medians; processor seconds are of both ends.
# Ends with one line RESULT {json}.
#   scripts/bench/client.sh BUILD
set -euo pipefail
exec "$(dirname "${BASH_SOURCE[0]}")/client.py" "$(realpath "$1")"
