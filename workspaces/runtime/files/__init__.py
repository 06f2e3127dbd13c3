"""Files of a workspace, below `{url}/files`."""
