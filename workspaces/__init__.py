"""Workspaces: the row, its states, its operations on real machines, and the routes under `/workspace`.

`models/` the rows; `states.py` the transition table; `services/` the only writers; `operations/` the long steps that
vmhost carries out; `reconcile/` what puts right what a crash left; `files/ logs/` sub-resources with their own views.
"""
