"""The image catalog: entries that staff edit, presets, and what a workspace keeps of the one it was made from."""
