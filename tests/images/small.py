"""Images that are nearly nothing: one program, no shell, no library."""

from __future__ import annotations

from tests.images.recipe import Recipe, configuration, web

PASSWD = "root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n"
BUSYBOX_PASSWD = "root:x:0:0:root:/root:/bin/sh\nwww:x:82:82::/var/www:/sbin/nologin\n"
WEB = {"/web": "web"}
BUSYBOX = {"/bin/busybox": "busybox", "/bin/sh": "busybox", "/bin/ls": "busybox", "/bin/httpd": "busybox"}
TRAPS = """#!/bin/sh
trap 'kill $!; echo ended by SIGTERM; exit 0' TERM
busybox httpd -f -p 8080 -h /var/www &
wait
"""

SMALL = (
    Recipe("scratch", web(8080, "200", "/ok"), {"Entrypoint": ["/web", "8080"]}, bare=WEB, disk_mb=64, nested=True),
    Recipe(
        "scratch-user",
        web(80, "200", "/ok"),
        {"Entrypoint": ["/web"], "Cmd": ["80"], "User": "65534:65534", "WorkingDir": "/data"},
        bare=WEB,
        disk_mb=64,
    ),
    Recipe(
        "distroless",
        web(8080, "200", "/ok"),
        configuration(["8080"], entrypoint=["/app/web"], User="nonroot", WorkingDir="/home/nonroot"),
        bare={"/app/web": "web"},
        files={"/etc/passwd": PASSWD, "/etc/group": "root:x:0:\nnonroot:x:65532:\n"},
        disk_mb=64,
    ),
    Recipe(
        "busybox",
        web(8080, "from busybox"),
        configuration(["sh", "/start.sh"]),
        bare=BUSYBOX,
        files={"/start.sh": TRAPS, "/var/www/index.html": "from busybox", "/etc/passwd": BUSYBOX_PASSWD},
        ended="ended by SIGTERM",
        disk_mb=64,
    ),
    Recipe(
        "alpine",
        web(80, "from alpine"),
        configuration(["httpd", "-f", "-p", "80", "-h", "/var/www"], User="www", WorkingDir="var/www/"),
        bare=BUSYBOX,
        files={
            "/var/www/index.html": "from alpine",
            "/etc/passwd": BUSYBOX_PASSWD,
            "/etc/os-release": "ID=alpine\nVERSION_ID=3.20\n",
        },
        disk_mb=64,
    ),
    Recipe(
        "shell-form",
        web(8080, "from a shell"),
        configuration(["/bin/sh", "-c", "exec busybox httpd -f -p 8080 -h $ROOT"], env=("ROOT=/srv",)),
        bare=BUSYBOX,
        files={"/srv/index.html": "from a shell"},
        disk_mb=64,
    ),
)
