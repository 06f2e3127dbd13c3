"""Archives of files of a workspace, in both directions: `{url}/files/transfer/...`."""
