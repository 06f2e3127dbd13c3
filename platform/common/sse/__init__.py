"""Server-sent events: frames, a bounded window of past events in Redis, the fan-out to many readers of one channel.

One *source* writes a *channel* however many *streams* read it. What it writes goes into the channel's window and to
every process that has readers, in one step (`window.py`). A stream delivers from its own short queue and reads the
window where the queue had no room, where something was missed, and where a client comes back (`stream.py`). So memory
is bounded by the window and the queues, and a reader that does not read costs nobody anything.
"""
