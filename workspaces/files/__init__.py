"""The filesystem of a workspace: `/workspace/:id/overlay...`. Served by the streams process."""
