"""Brokers, stores and other services that people run in images."""

from __future__ import annotations

import ssl
from contextlib import suppress

from tests.images.recipe import Probe, Recipe, configuration, web

STUNNEL = "foreground=yes\n[trial]\naccept=8443\nconnect=127.0.0.1:9\ncert=/etc/stunnel/trial.pem\n"


def client_hello() -> bytes:
    """The first message of a TLS client, which a server answers with its own."""
    context, sent = ssl.create_default_context(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="trial").do_handshake()
    return sent.read()


SERVICES = (
    Recipe(
        "mosquitto",
        Probe(1883, b"\x10\x0d\0\x04MQTT\x04\x02\0\x3c\0\x01t", b"\x20\x02\0\0"),
        configuration(
            ["mosquitto", "-c", "/mosquitto/mosquitto.conf"],
            Volumes={"/mosquitto/data": {}},
            ExposedPorts={"1883/tcp": {}},
        ),
        packages=("mosquitto",),
        files={"/mosquitto/mosquitto.conf": "listener 1883\nallow_anonymous true\nuser mosquitto\n"},
        ended="terminating",
    ),
    Recipe(
        "nats",
        Probe(4222, b"", b"INFO {"),
        configuration(["nats-server"], WorkingDir="/nats", ExposedPorts={"4222/tcp": {}}),
        packages=("nats-server",),
        ended="Initiating Shutdown",
    ),
    Recipe(
        "etcd",
        web(2379, "etcdserver", "/version"),
        configuration(
            [
                "etcd",
                "--data-dir=/data",
                "--listen-client-urls=http://0.0.0.0:2379",
                "--advertise-client-urls=http://0.0.0.0:2379",
            ],
            Volumes={"/data": {}},
        ),
        packages=("etcd-server",),
        memory_mb=512,
        seconds=120,
    ),
    Recipe(
        "beanstalkd",
        Probe(11300, b"stats\r\n", b"OK "),
        configuration(["beanstalkd", "-b", "/data"], User="daemon", WorkingDir="/tmp"),
        packages=("beanstalkd",),
        commands="mkdir /data; chown daemon /data",
    ),
    Recipe(
        "prometheus",
        web(9090, "200", "/-/healthy"),
        configuration(
            ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"],
            entrypoint=["/usr/bin/prometheus"],
            User="nobody",
            WorkingDir="/prometheus",
            Volumes={"/prometheus": {}},
        ),
        packages=("prometheus",),
        commands="mkdir -p /prometheus; chown 65534:65534 /prometheus",
        memory_mb=512,
        seconds=180,
    ),
    Recipe(
        "ftp",
        Probe(21, b"", b"220"),
        configuration(["vsftpd", "-obackground=NO", "-olisten=YES", "-olisten_ipv6=NO"]),
        packages=("vsftpd",),
        commands="mkdir -p /run/vsftpd/empty",
    ),
    Recipe(
        "ssh",
        Probe(2222, b"", b"SSH-2.0-OpenSSH"),
        configuration(["/usr/sbin/sshd", "-D", "-e", "-p", "2222"]),
        packages=("openssh-server",),
        commands="mkdir -p /run/sshd",
        ended="Received signal 15",
    ),
    Recipe(
        "stunnel",
        Probe(8443, client_hello(), b"\x16\x03"),
        configuration(["stunnel4", "/etc/stunnel/trial.conf"]),
        packages=("stunnel4", "openssl"),
        files={"/etc/stunnel/trial.conf": STUNNEL},
        commands="openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=trial -keyout /tmp/key -out /tmp/cert; "
        "cat /tmp/key /tmp/cert >/etc/stunnel/trial.pem",
        ended="]: Terminated",
    ),
    Recipe(
        "rsync",
        Probe(873, b"", b"@RSYNCD"),
        configuration(["rsync", "--daemon", "--no-detach", "--config=/etc/trial.conf"], Volumes={"/data": {}}),
        packages=("rsync",),
        files={"/etc/trial.conf": "[data]\npath = /data\n"},
    ),
)
