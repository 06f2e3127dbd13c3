"""CPUs, memory and disk of a workspace: what it has, what is saved for its next start, and changing it."""
