"""Virtual machines and the hosts they run on. Knows nothing of workspaces, accounts or the API.

`driver.py` is the contract; `libvirt/` and `fake/` implement it; `images/` makes base disks; `guest/` is what runs in
a machine and the session to it. Only `models.py`, `services.py`, `backend.py`, `admin.py`, `management/` know Django.
"""
