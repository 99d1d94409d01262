"""The client of Holdfast for any training program: a rank reports its progress, gets orders, and votes on the checkpoint
files that it has written. docs/manual/any-program.md shows how to use it.

    import holdfast

    hf = holdfast.open()          # without an agent every call does nothing
    hf.at(step, "forward")        # each step, and each phase that takes long
    order = hf.orders()           # on one rank, which tells the others
    hf.vote(step, path, files=["rank-0.pt"])    # by name, with digests; or files=1, bytes=1000
    hf.finished(step)

No configuration is needed: the agent that starts a rank puts its address into the rank's environment. A thread of the
client talks to the agent. Only close() waits for it, at most 2 s (and before that while named files are read); buffer() and
seal() wait for copies. No call ends the program. One process speaks for a rank: in its children every call does nothing.
"""

from holdfast._buffers import BuffersError
from holdfast._client import EXIT_STOPPED, PHASES, Client, Order, Phase, open

__all__ = ["BuffersError", "EXIT_STOPPED", "PHASES", "Client", "Order", "Phase", "open"]
