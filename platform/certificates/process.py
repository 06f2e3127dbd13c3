"""The part of the process `pages` that orders certificates, also while Redis is away.

The library of ACME is imported when it starts: every worker loads this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.work.processes import DispatcherProcess

if TYPE_CHECKING:
    from certificates.dispatcher import CertificateDispatcher


def _build() -> CertificateDispatcher:
    from certificates.dispatcher import CertificateDispatcher

    return CertificateDispatcher()


PROCESS = DispatcherProcess("pages", _build)
