"""The client of Holdfast for any training program: a rank says where it is, hears orders, and votes on what it has
written. docs/manual/any-program.md shows how to use it.

    import holdfast

    hf = holdfast.open()          # without an agent every call does nothing
    hf.at(step, "forward")        # each step, and each phase that takes long
    order = hf.orders()           # on one rank, which tells the others
    hf.vote(step, path, files=["rank-0.pt"])    # by name, with digests; or files=1, bytes=1000
    hf.finished(step)

Nothing is to be configured: the agent that starts a rank says in its environment where it listens. A thread of the
client speaks to the agent; no call waits for it but close(), for at most 2 s, buffer() waits for a copy of what it is to
write over, and no call ends the program. One process is one rank; a child of fork() has no client.
"""

from holdfast._buffers import BuffersError
from holdfast._client import EXIT_STOPPED, PHASES, Client, Order, Phase, open

__all__ = ["BuffersError", "EXIT_STOPPED", "PHASES", "Client", "Order", "Phase", "open"]
