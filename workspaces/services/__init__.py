"""The only writers of workspaces. Views, admin actions, tasks and sweeps call these."""
