"""Languages with a small web server each, which says by which signal it was ended."""

from __future__ import annotations

from tests.images.recipe import Probe, Recipe, configuration, web

NODE = """const http = require('http');
const server = http.createServer((request, answer) => answer.end('from node'));
process.on('SIGTERM', () => { console.log('ended by SIGTERM'); server.close(); process.exit(0); });
server.listen(80);
"""
PYTHON = """import http.server, os, signal, sys
def end(number, frame):
    print("ended by", signal.Signals(number).name, flush=True)
    sys.exit(0)
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, end)
http.server.test(http.server.SimpleHTTPRequestHandler, port=80, bind="0.0.0.0")
"""
GO = """package main
import ("fmt"; "net/http"; "os"; "os/signal"; "syscall")
func main() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	go func() { fmt.Println("ended by", <-ended); os.Exit(0) }()
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "from go") })
	http.ListenAndServe(":8080", nil)
}
"""
RUST = """use std::io::{Read, Write};
fn main() {
    let listener = std::net::TcpListener::bind("0.0.0.0:8080").unwrap();
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let _ = stream.read(&mut [0; 1024]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\\r\\nContent-Length: 9\\r\\n\\r\\nfrom rust");
    }
}
"""
JAVA = """import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
public class Trial {
  public static void main(String[] arguments) throws Exception {
    HttpServer server = HttpServer.create(new InetSocketAddress(8080), 0);
    server.createContext("/", exchange -> {
      exchange.sendResponseHeaders(200, 9);
      exchange.getResponseBody().write("from java".getBytes());
      exchange.close();
    });
    Runtime.getRuntime().addShutdownHook(new Thread(() -> System.out.println("ended in order")));
    server.start();
  }
}
"""
RUBY = """require 'webrick'
server = WEBrick::HTTPServer.new(Port: 8080)
server.mount_proc('/') { |_, answer| answer.body = 'from ruby' }
trap('TERM') { $stdout.puts 'ended by SIGTERM'; $stdout.flush; server.shutdown }
server.start
"""
PERL = """use IO::Socket::INET;
$SIG{TERM} = sub { print "ended by SIGTERM\\n"; exit 0 };
my $server = IO::Socket::INET->new(LocalPort => 8080, Listen => 9, ReuseAddr => 1) or die;
while (1) {
  my $client = $server->accept or next;
  sysread $client, my $request, 1024;
  print $client "HTTP/1.0 200 OK\\r\\n\\r\\nfrom perl";
  close $client;
}
"""
# A shell, as the official image's entrypoint is one: php itself says nothing at its end.
PHP = """#!/bin/sh
trap 'kill $!; echo ended by SIGINT; exit 0' INT
trap 'kill $!; exit 1' TERM
"$@" &
wait
"""
# FCGI_GET_VALUES of a name of 15 letters.
FASTCGI_VALUES = b"\1\x09\0\0\0\x11\0\0" + b"\x0f\0FCGI_MPXS_CONNS"
FLASK = """import atexit
from flask import Flask
atexit.register(print, "ended in order", flush=True)
app = Flask(__name__)
@app.get("/")
def page():
    return "from flask"
"""
WSGI = """def app(environ, start):
    start("200 OK", [("Content-Type", "text/plain")])
    return [b"from wsgi"]
"""

LANGUAGES = (
    Recipe(
        "python",
        web(80),
        configuration(
            ["python3", "-u", "/app/serve.py"], env=("LANG=C.UTF-8",), User="app", WorkingDir="/srv/made/here"
        ),
        packages=("python3",),
        files={"/app/serve.py": PYTHON},
        commands="useradd --system --no-create-home app",
        ended="ended by SIGTERM",
        nested=True,
    ),
    Recipe(
        "python-http-server",
        web(8000, "Directory listing"),
        configuration(["python3", "-m", "http.server"], User="1000", StopSignal="SIGINT"),
        packages=("python3",),
        ended="Keyboard interrupt received",
    ),
    Recipe(
        "node",
        web(80, "from node"),
        configuration(["node", "server.js"], env=("NODE_VERSION=18.19.0",), User="node", WorkingDir="/home/node/app"),
        packages=("nodejs",),
        files={"/home/node/app/server.js": NODE},
        commands="useradd --uid 1000 --home /home/node node",
        ended="ended by SIGTERM",
        memory_mb=512,
    ),
    Recipe(
        "golang",
        web(8080, "from go"),
        configuration(["/go/bin/trial"], env=("GOPATH=/go",), WorkingDir="/go"),
        packages=("golang-go",),
        files={"/go/src/main.go": GO},
        commands="cd /go/src && GOCACHE=/tmp/cache go build -o /go/bin/trial main.go && rm -rf /tmp/cache",
        ended="ended by terminated",
    ),
    Recipe(
        "rust",
        web(8080, "from rust"),
        configuration(["/usr/local/bin/trial"], env=("CARGO_HOME=/usr/local/cargo",)),
        packages=("rustc",),
        files={"/src/main.rs": RUST},
        commands="rustc -O -o /usr/local/bin/trial /src/main.rs",
    ),
    Recipe(
        "openjdk",
        web(8080, "from java"),
        configuration(["java", "-Xmx64m", "-cp", "/app", "Trial"], env=("JAVA_VERSION=17",), WorkingDir="/app"),
        packages=("openjdk-17-jdk-headless",),
        files={"/app/Trial.java": JAVA},
        commands="cd /app && javac Trial.java",
        ended="ended in order",
        memory_mb=512,
        seconds=180,
    ),
    Recipe(
        "php",
        web(80, "from php"),
        configuration(
            ["php", "-S", "0.0.0.0:80", "-t", "/var/www/html"],
            entrypoint=["docker-php-entrypoint"],
            WorkingDir="/var/www/html",
            StopSignal="SIGINT",
        ),
        packages=("php-cli",),
        files={
            "/usr/local/bin/docker-php-entrypoint": PHP,
            "/var/www/html/index.php": "<?php echo 'from', ' php';",
        },
        ended="ended by SIGINT",
    ),
    Recipe(
        "php-fpm",
        Probe(9000, FASTCGI_VALUES, b"FCGI_MPXS_CONNS"),
        configuration(["php-fpm8.2", "-F"], WorkingDir="/var/www/html", StopSignal="SIGQUIT"),
        packages=("php-fpm",),
        commands="sed -i 's|^listen = .*|listen = 9000|' /etc/php/8.2/fpm/pool.d/www.conf; mkdir -p /run/php; "
        "sed -i 's|^error_log = .*|error_log = /proc/self/fd/2|' /etc/php/8.2/fpm/php-fpm.conf",
        ended="Finishing",
    ),
    Recipe(
        "ruby",
        web(8080, "from ruby"),
        configuration(["ruby", "/app/serve.rb"], env=("LANG=C.UTF-8",), WorkingDir="/usr/src/app"),
        packages=("ruby", "ruby-webrick"),
        files={"/app/serve.rb": RUBY},
        ended="ended by SIGTERM",
        seconds=120,
    ),
    Recipe(
        "perl",
        web(8080, "from perl"),
        configuration(["perl", "/app/serve.pl"], WorkingDir="/usr/src/app"),
        packages=("perl",),
        files={"/app/serve.pl": PERL},
        ended="ended by SIGTERM",
    ),
    Recipe(
        "flask",
        web(5000, "from flask"),
        configuration(
            ["flask", "run", "--host=0.0.0.0"], env=("FLASK_APP=/app/app.py",), WorkingDir="/app", StopSignal="SIGINT"
        ),
        packages=("python3-flask",),
        files={"/app/app.py": FLASK},
        ended="ended in order",
        seconds=120,
    ),
    Recipe(
        "gunicorn",
        web(8000, "from wsgi"),
        configuration(["gunicorn", "--bind=0.0.0.0:8000", "app:app"], User="www-data", WorkingDir="/app"),
        packages=("gunicorn",),
        files={"/app/app.py": WSGI},
        ended="Handling signal: term",
        seconds=120,
    ),
)
