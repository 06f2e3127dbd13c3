"""Folders whose content a tenant or a guest chose: trees of any depth."""

from __future__ import annotations

import logging
import os
import subprocess
from pathlib import Path

log = logging.getLogger(__name__)


def remove_tree(path: Path) -> bool:
    """Remove a file or a folder with all below it, except other file systems; return whether nothing is left.

    Never raises because of what is there; what cannot be removed is left and logged. If this process dies, the removal
    ends with it, as a lock of the caller does. `rm` and not shutil.rmtree, which recurses and holds a descriptor for
    each level: there a thousand levels end in RecursionError, or in a tree that is left without a word.
    """
    command = ["setpriv", "--pdeathsig", "KILL", "--", "rm", "-rf", "--one-file-system", "--", str(path)]
    try:
        # Its error output is as long as the tree is large, and names what others chose.
        code = subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode
    except OSError as error:
        log.error("%s cannot be removed: %s", path, error)
        return False
    if os.path.lexists(path):
        log.error("%s cannot be removed: rm ended with code %d", path, code)
        return False
    return True
