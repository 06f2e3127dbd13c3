"""CPUs, memory and disk of a workspace: its present sizes, the sizes saved for its next start, and changing them."""
