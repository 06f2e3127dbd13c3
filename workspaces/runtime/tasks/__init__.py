"""Tasks of a workspace: commands that belong to the machine (wire contract, section 4b, "Tasks")."""
