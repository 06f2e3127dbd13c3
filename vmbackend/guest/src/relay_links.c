/* Connections that are passed on: two sockets each, and what is on its way between them. */
#define _GNU_SOURCE
#include "relay_links.h"

#include "relay_ports.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BUFFER_SIZE 32768
/* Seconds of silence until a client is asked whether it still is there, between the questions, and how many there are. */
#define ALIVE_IDLE 30
#define ALIVE_INTERVAL 10
#define ALIVE_QUESTIONS 3

struct flow {
	size_t start, end; /* of what was read and is not written yet */
	bool ended;        /* nothing more is read */
	bool shut;         /* and the end was passed on */
	char *data;        /* BUFFER_SIZE, while there is such */
};

/* Flow 0 is from the client to the program, flow 1 back: flow I is read from socket I. */
struct link {
	int sockets[2];
	unsigned port;
	bool connected;
	struct flow flows[2];
};

static struct link *links[MAX_LINKS];
static size_t link_count;

bool links_full(void)
{
	return link_count == MAX_LINKS;
}

/* As the kernel refuses a connection where nothing listens. */
static void reset(int client)
{
	const struct linger now = {.l_onoff = 1};
	setsockopt(client, SOL_SOCKET, SO_LINGER, &now, sizeof now);
	close(client);
}

static void set_option(int fd, int level, int option, int value)
{
	setsockopt(fd, level, option, &value, sizeof value);
}

/* Both ends write as they see fit: what is passed on must not wait until what came before it is acknowledged, 40 ms later. */
static void send_at_once(int fd)
{
	set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
}

/* A client that ended while the machine was paused or asleep, or without its network, has said so to nobody. */
static void notice_death(int client)
{
	set_option(client, SOL_SOCKET, SO_KEEPALIVE, 1);
	set_option(client, IPPROTO_TCP, TCP_KEEPIDLE, ALIVE_IDLE);
	set_option(client, IPPROTO_TCP, TCP_KEEPINTVL, ALIVE_INTERVAL);
	set_option(client, IPPROTO_TCP, TCP_KEEPCNT, ALIVE_QUESTIONS);
}

static bool port_full(unsigned port)
{
	size_t count = 0;
	for (size_t place = 0; place < link_count; place++)
		count += links[place]->port == port;
	return count >= MAX_PORT_LINKS;
}

static int connect_program(const struct local_port *target)
{
	struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((in_port_t)target->port), .sin_addr = {target->address}};
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = four.sin_port, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	bool is_four = target->address != INADDR_ANY;
	int fd = socket(is_four ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	const struct sockaddr *address = is_four ? (struct sockaddr *)&four : (struct sockaddr *)&six;
	if (fd >= 0 && (!connect(fd, address, is_four ? sizeof four : sizeof six) || errno == EINPROGRESS))
		return fd;
	close(fd);
	return -1;
}

void link_open(int client, const struct local_port *target)
{
	bool full = links_full() || port_full(target->port);
	int program = full ? -1 : connect_program(target);
	struct link *link = program >= 0 ? calloc(1, sizeof *link) : NULL;
	if (!link) {
		close(program);
		reset(client);
		return;
	}
	send_at_once(client);
	send_at_once(program);
	notice_death(client);
	link->sockets[0] = client;
	link->sockets[1] = program;
	link->port = target->port;
	links[link_count++] = link;
}

static void close_link(size_t place, bool failed)
{
	struct link *link = links[place];
	if (failed)
		reset(link->sockets[0]);
	else
		close(link->sockets[0]);
	close(link->sockets[1]);
	for (int i = 0; i < 2; i++)
		free(link->flows[i].data);
	free(link);
	links[place] = links[--link_count];
}

/* What is waited for on socket I: to read flow I, which must be empty, and to write the other one. */
static short events_of(const struct link *link, int i)
{
	const struct flow *in = &link->flows[i], *out = &link->flows[!i];
	if (!link->connected)
		return i ? POLLOUT : 0;
	return (short)((!in->ended && in->start == in->end ? POLLIN : 0) | (out->start < out->end ? POLLOUT : 0));
}

size_t links_poll(struct pollfd *sources)
{
	for (size_t place = 0; place < link_count; place++)
		for (int i = 0; i < 2; i++) {
			short events = events_of(links[place], i);
			/* A hang-up is always reported: after both ends it is expected, and must not wake the loop. */
			bool watched = events || !links[place]->flows[!i].shut;
			sources[2 * place + (size_t)i] = (struct pollfd){.fd = watched ? links[place]->sockets[i] : -1, .events = events};
		}
	return 2 * link_count;
}

static bool is_temporary(void)
{
	return errno == EAGAIN || errno == EINTR;
}

/* False where the connection is broken. */
static bool read_flow(struct flow *flow, int from)
{
	if (!flow->data && !(flow->data = malloc(BUFFER_SIZE)))
		return false;
	ssize_t got = recv(from, flow->data, BUFFER_SIZE, 0);
	if (got < 0)
		return is_temporary();
	flow->start = 0;
	flow->end = (size_t)got;
	flow->ended = !got;
	return true;
}

/* A flow in which nothing is on its way has no buffer: most connections are silent most of the time. */
static bool write_flow(struct flow *flow, int to)
{
	if (flow->start < flow->end) {
		ssize_t sent = send(to, flow->data + flow->start, flow->end - flow->start, MSG_NOSIGNAL);
		if (sent < 0)
			return is_temporary();
		flow->start += (size_t)sent;
	}
	if (flow->start == flow->end) {
		free(flow->data);
		flow->data = NULL;
	}
	if (flow->ended && flow->start == flow->end && !flow->shut) {
		flow->shut = true;
		shutdown(to, SHUT_WR);
	}
	return true;
}

static bool finish_connect(struct link *link)
{
	int error = 0;
	socklen_t size = sizeof error;
	link->connected = true;
	return !getsockopt(link->sockets[1], SOL_SOCKET, SO_ERROR, &error, &size) && !error;
}

/* False where the link has failed. */
static bool serve_link(struct link *link, const struct pollfd *sources)
{
	for (int i = 0; i < 2; i++)
		if (!sources[i].events && sources[i].revents)
			return false; /* reset, while nothing was to be read from it or written to it */
	if (!link->connected)
		return !sources[1].revents || finish_connect(link);
	for (int i = 0; i < 2; i++) {
		struct flow *flow = &link->flows[i];
		if (sources[i].events & POLLIN && sources[i].revents && !read_flow(flow, link->sockets[i]))
			return false;
		if (!write_flow(flow, link->sockets[!i]))
			return false;
	}
	return true;
}

/* From the last one on, as the last one takes the place of one that is closed. */
void links_serve(const struct pollfd *sources, size_t count)
{
	for (size_t place = count / 2; place-- > 0;) {
		const struct link *link = links[place];
		if (!serve_link(links[place], sources + 2 * place))
			close_link(place, true);
		else if (link->flows[0].shut && link->flows[1].shut)
			close_link(place, false);
	}
}
