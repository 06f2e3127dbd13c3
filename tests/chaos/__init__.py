"""The chaos run: clients and faults against a whole instance with real machines, and what must hold afterwards.

`python -m tests.chaos --minutes 5 --seed 1` (`make chaos`). From the outside in:

    __main__    the command
    run         the course of a run: active phases and quiet points
    world       the instance on a file system of its own, its accounts and their webhooks
    receivers   where the webhooks lead to
    schedule    which fault comes when, from the seed
    faults      what the faults do; `processes` finds their victims
    clients     threads that do the `operations`, each on workspaces of its own; `creation`, `streams`, `sleep`,
                `announcements`, `sites` are some
    session     one account's requests; `answers` checks every answer to them
    ledger      what was asked for and acknowledged
    snapshot    what rows, host and Redis hold at a quiet point
    invariants  what is compared then; pure functions, tested in test_invariants.py
    verify      the acknowledged files, memory and totals, read back through the API
    report      counts and violations
"""
