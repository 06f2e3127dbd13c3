"""Everything one instance of the platform derives from its state folder and its port.

An instance is a folder (`STATE`, default `./var`) and a port (`PORT`, default 8000). Its id is a hash of the folder's
absolute path, so two instances on one machine differ in every name on the host: bridge, subnet, sockets, processes.
A choice that depends on the state of the host (the subnet) is written to `instance.json` and never changes, because
running machines carry it.

Settings reach the processes as `PLATFORM_*` environment variables. The caller's environment wins, then
`$STATE/settings.env`, then what this machine was given when it joined another one (`$STATE/joined.env`), then what is
derived here, then the defaults of `config.env`.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

from config.env import Env, variable
from supervise.files import read_env_file, write_private, write_private_once
from supervise.state_folder import (
    CHOICES,
    JOINED,
    RESTORING,
    foreign_content,
    identity_of,
    make_folders,
    path_as_made,
)
from supervise.subnets import SUBNETS, choose_subnet

ROOT = Path(__file__).resolve().parents[2]
# libvirt and QEMU make sockets about 45 characters below the state folder, and a socket's path may have 107 at most.
SHORT_PATH_LIMIT = 48
# The settings that are generated once, and never empty.
KEYS = ("secret_key", "data_key")


class InstanceError(Exception):
    """The instance cannot be used; the message says what the operator can do about it."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance's folders and names. `short` is the state folder under a path short enough for sockets."""

    id: str
    state: Path
    short: Path
    port: int
    subnet: IPv4Network

    @property
    def run_dir(self) -> Path:
        """Return the folder of sockets, pid files and generated configuration; each start makes all of it."""
        return self.short / "run"

    @property
    def log_dir(self) -> Path:
        return self.state / "log"

    @property
    def credentials_file(self) -> Path:
        return self.state / "credentials.env"

    def settings(self, environment: Mapping[str, str] | None = None) -> Env:
        """Return the settings of this instance's processes; `environment` is the caller's, by default that of this
        process.

        Raise InstanceError with one line for each invalid setting.
        """
        caller = os.environ if environment is None else environment
        values = {variable("subnet"): str(self.subnet), **self._own_settings()}
        values |= _without_empty_key(_of_the_caller(caller, self.id))
        values |= {
            variable("state"): str(self.state),
            variable("short_state"): str(self.short),
            variable("instance"): self.id,
            variable("port"): str(self.port),
        }
        for name in ("role", "supervised"):
            values.pop(variable(name), None)
        try:
            return Env.from_environment(values)
        except ImproperlyConfigured as error:
            raise InstanceError(str(error)) from error

    def _own_settings(self) -> dict[str, str]:
        """Return the settings of `settings.env`, `joined.env` and `secrets.env`.

        If the operator gives another key than the generated one, what that one signed and encrypted stays valid.
        """
        generated = read_env_file(self.state / "secrets.env") | read_env_file(self.state / JOINED)
        given = _without_empty_key(_read_settings(self.state))
        for name in KEYS:
            key, former = variable(name), variable(f"{name}_fallbacks")
            if key in given and key in generated:
                given[former] = f"{given.get(former, '')},{generated[key]}"
        return generated | given


def load_instance(state: str | Path | None = None, port: int | str | None = None) -> Instance:
    """Return the instance of a state folder; makes the folder, its secrets and its lasting choices if they are missing.

    Defaults come from the variables STATE (or PLATFORM_STATE) and PORT (or PLATFORM_PORT, which settings.env may hold).
    Safe to call at any time, also while the instance runs. Raise InstanceError.
    """
    folder = state_folder(state or os.environ.get("STATE") or os.environ.get(variable("state")) or ROOT / "var")
    if (folder / RESTORING).exists():
        raise InstanceError(f"A restore into {folder} was interrupted: repeat `make restore`, or remove the folder.")
    instance_id = identity_of(folder)
    number = port_number(port or _given_port(folder, instance_id) or Env.model_fields["port"].default)
    _make_folders(folder)
    choices = _lasting_choices(folder, instance_id)
    _ensure_secrets(folder / "secrets.env")
    instance = Instance(instance_id, folder, Path(choices["short"]), number, IPv4Network(choices["subnet"]))
    ensure_short_path(instance)
    return instance


def _ensure_secrets(path: Path) -> None:
    """Make the file, or add the keys that one of an earlier version has not."""
    made = {variable(name): secrets.token_urlsafe(48) for name in KEYS}
    write_private_once(path, _lines(made))
    known = read_env_file(path)
    # A machine that joined has the data key alone, and a file that cannot be read has none.
    if variable("secret_key") in known and not made.keys() <= known.keys():
        write_private(path, _lines(made | known))


def _lines(values: Mapping[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in values.items())


def _given_port(folder: Path, instance_id: str) -> str | None:
    """Return the port as make passes it, else as the caller's environment or the instance's settings have it."""
    key = variable("port")
    return os.environ.get("PORT") or _of_the_caller(os.environ, instance_id).get(key) or _read_settings(folder).get(key)


def _of_the_caller(environment: Mapping[str, str], instance_id: str) -> dict[str, str]:
    """Return the caller's variables, without those that `make env` of another instance exported into the same shell.

    Two instances must never share files, a database or a key by accident.
    """
    if environment.get(variable("instance"), instance_id) == instance_id:
        return dict(environment)
    other = Path(environment.get(variable("state")) or "/nonexistent")
    exported = read_env_file(other / "settings.env")
    own = {variable(name) for name in ("state", "short_state", "instance", "port", "subnet", *KEYS)}
    return {key: value for key, value in environment.items() if key not in own and exported.get(key) != value}


def state_folder(given: str | Path) -> Path:
    """Return the path of a state folder. Raise InstanceError: it cannot be one."""
    folder = Path(os.path.normpath(Path.cwd() / given))
    # The path goes into make, supervisor, Caddy and libvirt configuration, each with quoting rules of its own.
    if not re.fullmatch(r"[\w./@+,=-]+", str(folder), re.ASCII):
        raise InstanceError(f"STATE may hold letters, digits and . / @ + , = _ - only, not {str(folder)!r}.")
    try:
        return path_as_made(folder)
    except (OSError, RuntimeError) as error:  # links that lead to themselves
        raise InstanceError(f"The state folder {folder} cannot be reached: {error}.") from error


def _without_empty_key(values: dict[str, str]) -> dict[str, str]:
    """Return the settings without an empty key: the generated one stays, instead of one that everybody knows."""
    keys = {variable(name) for name in KEYS}
    return {name: value for name, value in values.items() if value or name not in keys}


def _read_settings(folder: Path) -> dict[str, str]:
    path = folder / "settings.env"
    try:
        return read_env_file(path)
    except (OSError, ValueError) as error:
        raise InstanceError(f"{path} cannot be read: {error}.") from error


def _make_folders(folder: Path) -> None:
    """Make the folders. `STATE=/var` is `./var` without its dot: a folder with other content is left as it is. Raise
    InstanceError.
    """
    try:
        # The checkout's own `var`, the default, is meant whatever else was put there.
        foreign = foreign_content(folder) if folder != ROOT / "var" else None
        if foreign is None:
            make_folders(folder)
    except OSError as error:
        raise InstanceError(f"The state folder {folder} cannot be made: {error.strerror}.") from error
    if foreign is not None:
        raise InstanceError(
            f"{folder} holds {foreign!r}, which is not part of an instance: name another STATE, or an empty folder."
        )


def _lasting_choices(folder: Path, instance_id: str) -> dict[str, str]:
    path = folder / CHOICES
    try:
        choices: dict[str, str] = json.loads(path.read_text())
        if not isinstance(choices, dict):
            raise ValueError("it does not hold an object")
    except FileNotFoundError:
        choices = {}
    except (OSError, ValueError) as error:
        raise InstanceError(f"{path} cannot be read ({error}); restore it from a backup.") from error
    if choices.get("id") == instance_id and {"short", "subnet"} <= choices.keys():
        return choices
    # A state folder that was moved is another instance: its machines' sockets and taps carry the old names.
    subnet = choose_subnet(int(instance_id, 16))
    if subnet is None:
        raise InstanceError(f"Every subnet of {SUBNETS} overlaps a route of this host; set {variable('subnet')}.")
    short = short_path(folder, instance_id)
    choices = {"id": instance_id, "state": str(folder), "short": short, "subnet": str(subnet)}
    write_private(path, json.dumps(choices, indent=2) + "\n")
    return choices


def short_path(folder: Path, instance_id: str) -> str:
    """Return the path under which sockets of the instance are reached. PostgreSQL's clients take a comma for a
    separator.
    """
    if len(str(folder)) <= SHORT_PATH_LIMIT and "," not in str(folder):
        return str(folder)
    base = Path("/run") if os.access("/run", os.W_OK) else Path(tempfile.gettempdir())
    return str(base / f"mvm-{instance_id}")


def ensure_short_path(instance: Instance) -> None:
    """Link the short path to a long state folder. Made at each start, as /run is empty after a boot.

    Raise InstanceError.
    """
    if instance.short == instance.state:
        return
    try:
        instance.short.symlink_to(instance.state)
    except FileExistsError:
        if not instance.short.is_symlink() or instance.short.readlink() != instance.state:
            raise InstanceError(f"{instance.short} is in the way; remove it or choose a shorter STATE.") from None
    except OSError as error:
        raise InstanceError(f"{instance.short} cannot be made: {error.strerror}.") from error


def port_number(value: int | str) -> int:
    """Raise InstanceError."""
    try:
        number = int(value)
    except ValueError:
        number = 0
    if not 0 < number < 65536:
        raise InstanceError(f"PORT must be a number between 1 and 65535, not {value!r}.")
    return number
