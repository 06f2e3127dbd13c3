"""Server-sent events: frames, a bounded replay buffer in Redis, the fan-out to many readers of one channel.

One *source* writes a *channel*, any number of *streams* read it. An event goes into the channel's replay buffer and to
every process with readers in one step (`replay.py`). A stream delivers from its own short queue, and reads the replay
buffer after a queue overflow, after a missed event, and when a client reconnects (`stream.py`). Memory is bounded by
the buffers and the queues; a client that does not read costs the others nothing.
"""
