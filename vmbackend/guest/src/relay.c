/* Connections from outside to programs that listen on the guest's loopback only (127.0.0.1, ::1), as development servers do.
 *
 * A listener on the guest's address would be in the way of a program that binds all addresses later. So the kernel is asked,
 * by a small program at its lookup of sockets (relay_steer.c), to hand new connections for such a port to the one listener
 * that is here, which itself is bound to loopback. They are passed on to the program byte for byte. Who may connect from
 * outside, and to which ports, the host decides, as for programs that listen on all addresses: only it reaches the guest.
 */
#define _GNU_SOURCE
#include "guest.h"
#include "relay_links.h"
#include "relay_ports.h"
#include "relay_steer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SCAN_MS 500
#define BACKLOG 128

static struct local_port ports[MAX_LOCAL_PORTS];
static size_t port_count;

static const struct local_port *port_in(const struct local_port *list, size_t count, unsigned port)
{
	for (size_t i = 0; i < count; i++)
		if (list[i].port == port)
			return list + i;
	return NULL;
}

/* A port whose program has gone stays out of the kernel's table from the next look on. */
static void update_ports(const struct local_port *found, size_t count)
{
	for (size_t i = 0; i < port_count; i++)
		if (!port_in(found, count, ports[i].port))
			steer_port(ports[i].port, false);
	for (size_t i = 0; i < count; i++)
		if (!port_in(ports, port_count, found[i].port))
			steer_port(found[i].port, true);
	memcpy(ports, found, count * sizeof *found);
	port_count = count;
}

static int open_listener(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1;
	/* Its connections have the ports of programs, and inherit this: without it they would keep programs from binding them. */
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, BACKLOG))
		return -1;
	return fd;
}

/* The port that the client asked for is that of the accepted socket. */
static void accept_client(int listener)
{
	struct sockaddr_in asked;
	socklen_t size = sizeof asked;
	int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (client < 0)
		return;
	bool known = !getsockname(client, (struct sockaddr *)&asked, &size);
	const struct local_port *port = known ? port_in(ports, port_count, ntohs(asked.sin_port)) : NULL;
	if (port)
		link_open(client, port);
	else
		close(client); /* it was for the listener itself, or for a program that has just gone */
}

static in_addr_t own_address(void)
{
	char text[64];
	snprintf(text, sizeof text, "%s", config_get("address"));
	text[strcspn(text, "/")] = 0;
	return inet_addr(text);
}

static void serve(int listener, in_addr_t own)
{
	static struct pollfd sources[1 + LINK_SOURCES];
	static struct local_port found[MAX_LOCAL_PORTS];
	long long scan_at = 0;
	for (;;) {
		if (now_ms() >= scan_at) {
			update_ports(found, find_local_ports(own, found));
			scan_at = now_ms() + SCAN_MS;
		}
		sources[0] = (struct pollfd){.fd = links_full() ? -1 : listener, .events = POLLIN};
		size_t count = links_poll(sources + 1);
		if (poll(sources, 1 + count, SCAN_MS) <= 0)
			continue;
		links_serve(sources + 1, count);
		if (sources[0].revents)
			accept_client(listener);
	}
}

/* Where the kernel cannot do it, nothing listens on behalf of these programs, as without this. */
void run_relay(void)
{
	in_addr_t own = own_address();
	syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, 0); /* the stage's */
	int listener = open_listener();
	prctl(PR_SET_NAME, "relay");
	set_oom("-500");
	signal(SIGPIPE, SIG_IGN);
	if (listener >= 0 && steer_open(own, listener))
		serve(listener, own);
	log_boot("programs on loopback are not reached from outside: %s", strerror(errno));
	for (;;)
		pause();
}
