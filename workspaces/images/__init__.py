"""The image catalog: entries that staff edit, presets, and the snapshot that a workspace stores."""
