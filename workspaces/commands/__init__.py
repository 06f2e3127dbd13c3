"""Running a command in a workspace. Served by the streams process."""
