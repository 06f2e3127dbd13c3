"""Logs of a workspace: the console's on its host, read by that host's vmhost, and the programs' inside its guest."""
