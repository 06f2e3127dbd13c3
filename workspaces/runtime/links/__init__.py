"""Links to single files of a workspace: `{url}/files/links` (wire contract, section 4b)."""
