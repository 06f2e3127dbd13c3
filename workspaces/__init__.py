"""Workspaces: the row, its states, its operations on real machines, and the routes under `/workspace`.

Each sub-resource is a package with `services.py` (the only writers), `selectors.py`, `serializers.py` and `views.py`.
`host/` is what vmhost and the worker run; `operations/` is how requests queue an operation and wait for its outcome.
The modules beside them (`models`, `states`, `transitions`, `rows`, `audit`, ...) are what all of them share. The layers
are in pyproject.toml and docs/architecture.md.
"""
