"""Databases, web servers, brokers and caches, with the configurations of their official images."""

from __future__ import annotations

from tests.images.recipe import Probe, Recipe, configuration, web

# The shape of official entrypoint scripts: as root they give the data to a user and start again as that user.
AS_USER = """#!/bin/sh
set -e
if [ "$(id -u)" = 0 ]; then
	mkdir -p {data}
	chown -R {user} {data}
	exec setpriv --reuid={user} --regid={user} --init-groups -- "$0" "$@"
fi
{first}
exec "$@"
"""
POSTGRES_FIRST = """export PATH="/usr/lib/postgresql/15/bin:$PATH"
if [ ! -s "$PGDATA/PG_VERSION" ]; then
	: "${POSTGRES_PASSWORD:?a password is needed}"
	initdb --username=postgres --pwfile=/dev/stdin --auth-host=scram-sha-256 --no-sync <<-END
		$POSTGRES_PASSWORD
	END
	echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
	echo "listen_addresses = '*'" >>"$PGDATA/postgresql.conf"
fi"""
MARIADB_FIRST = "[ -d /var/lib/mysql/mysql ] || mariadb-install-db --user=mysql --skip-test-db >/dev/null"
RABBIT_CONFIG = "listeners.tcp.default = 5672\nvm_memory_high_watermark.absolute = 200MB\n"
HAPROXY_CONFIG = """global
	stats socket /run/haproxy.sock
defaults
	mode http
	timeout client 5s
	timeout server 5s
	timeout connect 5s
frontend web
	bind :8080
	http-request return status 200 content-type text/plain string "from haproxy"
"""
NGINX_LOGS = "ln -sf /dev/stdout /var/log/nginx/access.log; ln -sf /dev/stderr /var/log/nginx/error.log"
UNPRIVILEGED_NGINX = """pid /tmp/nginx.pid;
error_log /dev/stderr notice;
events {}
http {
	access_log off;
	client_body_temp_path /tmp/body; proxy_temp_path /tmp/proxy; fastcgi_temp_path /tmp/fastcgi;
	uwsgi_temp_path /tmp/uwsgi; scgi_temp_path /tmp/scgi;
	server { listen 8080; location / { return 200 "from a user"; } }
}
"""
APACHE = "ServerName trial\\nErrorLog /dev/stderr\\n"
HTTPD = "#!/bin/sh\nset -e\n. /etc/apache2/envvars\nmkdir -p /var/run/apache2\nexec apache2 -DFOREGROUND\n"
VARNISH = 'vcl 4.1;\nbackend none none;\nsub vcl_recv { return (synth(200, "from varnish")); }\n'
REDIS_ENTRY = AS_USER.format(data="/data", user="redis", first="")

SERVERS = (
    Recipe(
        "redis",
        Probe(6379, b"PING\r\n", b"+PONG"),
        configuration(
            ["redis-server", "--protected-mode", "no", "--save", ""],
            entrypoint=["docker-entrypoint.sh"],
            env=("REDIS_VERSION=7.0.15",),
            WorkingDir="/data",
            Volumes={"/data": {}},
            ExposedPorts={"6379/tcp": {}},
        ),
        packages=("redis-server",),
        files={"/usr/local/bin/docker-entrypoint.sh": REDIS_ENTRY},
        ended="Received SIGTERM",
        nested=True,
    ),
    Recipe(
        "nginx",
        web(80, "Welcome to nginx"),
        configuration(
            ["nginx", "-g", "daemon off; error_log /dev/stderr notice;"],
            entrypoint=["/docker-entrypoint.sh"],
            ExposedPorts={"80/tcp": {}},
            StopSignal="SIGQUIT",
        ),
        packages=("nginx-light",),
        files={"/docker-entrypoint.sh": '#!/bin/sh\nset -e\nexec "$@"\n'},
        commands=NGINX_LOGS,
        ended="signal 3 (SIGQUIT) received",
    ),
    Recipe(
        "nginx-unprivileged",
        web(8080, "from a user"),
        configuration(
            ["nginx", "-c", "/etc/nginx/user.conf", "-g", "daemon off;"],
            User="101:101",
            StopSignal="SIGQUIT",
            ExposedPorts={"8080/tcp": {}},
        ),
        packages=("nginx-light",),
        files={"/etc/nginx/user.conf": UNPRIVILEGED_NGINX},
        commands="chown -R 101:101 /var/lib/nginx",
        ended="signal 3 (SIGQUIT) received",
    ),
    Recipe(
        "postgres",
        Probe(5432, b"\0\0\0\x08\x04\xd2\x16\x2f", b"N"),
        configuration(
            ["postgres"],
            entrypoint=["docker-entrypoint.sh"],
            env=("PGDATA=/var/lib/postgresql/data", "LANG=C.UTF-8"),
            Volumes={"/var/lib/postgresql/data": {}},
            ExposedPorts={"5432/tcp": {}},
            StopSignal="SIGINT",
        ),
        packages=("postgresql-15",),
        files={
            "/usr/local/bin/docker-entrypoint.sh": AS_USER.format(
                data='"$PGDATA" /var/run/postgresql', user="postgres", first=POSTGRES_FIRST
            )
        },
        commands="pg_dropcluster 15 main || true",
        env={"POSTGRES_PASSWORD": "trial"},
        ended="received fast shutdown request",
        memory_mb=512,
        seconds=180,
    ),
    Recipe(
        "httpd",
        web(80),
        configuration(
            ["httpd-foreground"],
            WorkingDir="/usr/local/apache2",
            ExposedPorts={"80/tcp": {}},
            StopSignal="SIGWINCH",
        ),
        packages=("apache2",),
        files={"/usr/local/bin/httpd-foreground": HTTPD},
        commands=f"printf '{APACHE}' >/etc/apache2/conf-enabled/trial.conf",
        ended="caught SIGWINCH, shutting down gracefully",
    ),
    Recipe(
        "mariadb",
        Probe(3306, b"", b"MariaDB"),
        configuration(
            ["mariadbd", "--bind-address=0.0.0.0", "--datadir=/var/lib/mysql"],
            entrypoint=["docker-entrypoint.sh"],
            Volumes={"/var/lib/mysql": {}},
            ExposedPorts={"3306/tcp": {}},
        ),
        packages=("mariadb-server",),
        files={
            "/usr/local/bin/docker-entrypoint.sh": AS_USER.format(
                data="/var/lib/mysql /run/mysqld", user="mysql", first=MARIADB_FIRST
            )
        },
        commands="rm -rf /var/lib/mysql/*",
        ended="Shutdown complete",
        memory_mb=768,
        disk_mb=2048,
        seconds=240,
    ),
    Recipe(
        "rabbitmq",
        Probe(5672, b"AMQP\0\0\x09\x01", b"RabbitMQ"),
        configuration(
            # Debian's own command of that name writes into files what it says.
            ["/usr/lib/rabbitmq/bin/rabbitmq-server"],
            env=("RABBITMQ_LOGS=-", "HOME=/var/lib/rabbitmq", "LANG=C.UTF-8"),
            User="rabbitmq",
            Volumes={"/var/lib/rabbitmq": {}},
            ExposedPorts={"5672/tcp": {}},
        ),
        packages=("rabbitmq-server",),
        files={"/etc/rabbitmq/rabbitmq.conf": RABBIT_CONFIG},
        ended="SIGTERM received",
        memory_mb=1024,
        disk_mb=2048,
        seconds=300,
    ),
    Recipe(
        "memcached",
        Probe(11211, b"version\r\n", b"VERSION"),
        configuration(["memcached", "-v", "-l", "0.0.0.0"], User="memcache", ExposedPorts={"11211/tcp": {}}),
        packages=("memcached",),
        ended="Exiting normally",
    ),
    Recipe(
        "haproxy",
        web(8080, "from haproxy"),
        configuration(
            ["haproxy", "-W", "-db", "-f", "/usr/local/etc/haproxy/haproxy.cfg"],
            WorkingDir="/var/lib/haproxy",
            StopSignal="SIGUSR1",
        ),
        packages=("haproxy",),
        files={"/usr/local/etc/haproxy/haproxy.cfg": HAPROXY_CONFIG},
        ended="stopped",
    ),
    Recipe(
        "lighttpd",
        web(80, "lighttpd"),
        configuration(["lighttpd", "-D", "-f", "/etc/lighttpd/lighttpd.conf"], StopSignal="SIGINT"),
        packages=("lighttpd",),
        commands="ln -sf /dev/stderr /var/log/lighttpd/error.log",
        ended="graceful shutdown started",
    ),
    Recipe(
        "caddy",
        web(80, "from caddy"),
        configuration(
            ["caddy", "respond", "--listen", ":80", "from caddy"],
            env=("XDG_CONFIG_HOME=/config", "XDG_DATA_HOME=/data"),
            WorkingDir="/srv",
            Volumes={"/config": {}, "/data": {}},
        ),
        packages=("caddy",),
        ended="shutting down",
        memory_mb=512,
    ),
    Recipe(
        "varnish",
        web(80, "from varnish"),
        configuration(
            # Its working directory: that of Debian is root's.
            ["varnishd", "-F", "-f", "/etc/varnish/trial.vcl", "-a", ":80", "-s", "malloc,32m", "-n", "/tmp/varnishd"],
            User="vcache",
        ),
        packages=("varnish", "gcc", "libc6-dev"),
        files={"/etc/varnish/trial.vcl": VARNISH},
        memory_mb=512,
        seconds=180,
    ),
    Recipe(
        "squid",
        web(3128, "Squid", "cache_object"),
        configuration(["squid", "-N", "-d1"], ExposedPorts={"3128/tcp": {}}),
        packages=("squid",),
        files={"/etc/squid/conf.d/trial.conf": "shutdown_lifetime 2 seconds\n"},  # 30, longer than any grace
        memory_mb=512,
    ),
)
