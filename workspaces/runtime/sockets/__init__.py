"""The socket of a workspace's runtime, `{url}/ws`: the output of all terminals and the events of all watchers."""
