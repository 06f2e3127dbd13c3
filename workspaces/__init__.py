"""Workspaces: the row, its states, its operations on real machines, and the routes under `/workspace`.

Each sub-resource is a package with `services.py` (the only writers), `selectors.py`, `serializers.py` and `views.py`.
Vmhost and the worker run `host/`. Requests queue an operation and wait for its outcome by `operations/`. The modules
beside them (`models`, `states`, `transitions`, `rows`, `audit`, ...) are shared by all. The layers are in
pyproject.toml and docs/architecture.md.
"""
