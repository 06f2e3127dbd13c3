"""The configuration of supervisord for an instance, and the environment of its processes."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from config.env import Env, variable
from supervise.files import write_private
from supervise.instance import ROOT, Instance
from supervise.processes import Process

PYTHONPATH = f"{ROOT}:{ROOT / 'platform'}"

_SUPERVISORD = """\
[supervisord]
logfile = {run}/supervisord.log
logfile_maxbytes = 1MB
logfile_backups = 1
loglevel = info
pidfile = {run}/supervisord.pid
identifier = platform-{id}
childlogdir = {log}
directory = {root}
umask = 077
minfds = 4096

[unix_http_server]
file = {run}/supervisor.sock
chmod = 0600

[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
"""

_LISTENER = """\
; Opened by supervisord, and kept open while the process restarts (supervise/listeners.py).
socket = unix://{socket}
socket_mode = 0600
"""

_PROGRAM = """\
[{kind}:{name}]
command = {command}
directory = {root}
priority = {priority}
autostart = true
autorestart = true
startsecs = {start_seconds}
; The wait before try n is n seconds, so a fault of an hour is tried again after a minute and a half; it
; never gives up.
startretries = 100000
stopsignal = {stop_signal}
stopwaitsecs = {stop_seconds}
; A process that ignores that signal is killed together with what it started; machines left its group long before.
stopasgroup = false
killasgroup = true
redirect_stderr = true
stdout_logfile = {log}/{name}.log
stdout_logfile_maxbytes = 10MB
stdout_logfile_backups = 3
"""


def write_configuration(instance: Instance, listed: list[Process]) -> Path:
    """Write `$STATE/run/supervisord.conf` and return its path.

    Settings and secrets are not in it: the processes inherit them from supervisord's own environment.
    """
    parts = [_SUPERVISORD.format(run=instance.run_dir, log=instance.log_dir, id=instance.id, root=ROOT)]
    for priority, process in enumerate(listed, start=1):
        listener = _LISTENER.format(socket=process.socket) if process.socket else ""
        parts.append(
            _PROGRAM.format(
                # The kind for processes with an inherited socket; nothing else of FastCGI is used.
                kind="fcgi-program" if process.socket else "program",
                name=process.name,
                # supervisor expands %(name)s, and celery's %h stands in here.
                command=shlex.join(process.wrapped()).replace("%", "%%"),
                root=ROOT,
                priority=priority * 10,
                start_seconds=process.start_seconds,
                stop_signal=process.stop_signal,
                stop_seconds=process.stop_seconds,
                log=instance.log_dir,
            )
            + listener
        )
    path = instance.run_dir / "supervisord.conf"
    write_private(path, "\n".join(parts))
    return path


def process_environment(instance: Instance, settings: Env, *, supervised: bool = False) -> dict[str, str]:
    """Return the whole environment of a process of this instance.

    `supervised`: it carries the instance's mark, so that `make down` ends it and everything below it.
    """
    known = {variable(name) for name in Env.model_fields}
    marked = settings.model_copy(update={"supervised": instance.id}) if supervised else settings
    return {
        **{key: value for key, value in os.environ.items() if key not in known},
        **marked.variables(),
        "STATE": str(instance.state),
        "PORT": str(instance.port),
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "PYTHONPATH": PYTHONPATH,
        "PYTHONUNBUFFERED": "1",
        "PATH": f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin",
    }
