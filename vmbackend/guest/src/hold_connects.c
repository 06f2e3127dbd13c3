/* Connections to servers on the guest's loopback, each of the stream that asked for it and known by an id of its choice.
 *
 * Bytes for the client are read from the server when they can be sent, and are kept nowhere; of those for the server at most a
 * window waits here, as its client may send no more than it was granted.
 */
#define _GNU_SOURCE
#include "hold_connects.h"

#include "guest.h"
#include "hold_frames.h"
#include "hold_state.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define WINDOW (128 << 10)      /* bytes that a server has not taken */
#define GRANT_STEP (WINDOW / 4) /* no grant for less */
#define FILL (48 << 10)         /* bytes of servers are added up to this: tasks' outputs are up to a little less */
#define FRAME (24 << 10)        /* bytes of a server in a frame: as many as of a task's output */
#define ADDRESS_SIZE 16

enum ending { COMPLETE, BROKEN };

struct connection {
	struct stream *stream;
	uint32_t id, request;
	int fd;
	bool connecting;
	bool ended;        /* the server sends no more */
	bool deaf;         /* the server takes no more: what comes for it is dropped */
	uint64_t received; /* from the client, in all */
	uint64_t granted;  /* the client may send up to this */
	uint64_t sent;     /* to the client */
	uint64_t window;   /* up to this may be sent to it */
	size_t waiting;    /* bytes for the server, at the start of DATA */
	uint8_t *data;     /* WINDOW bytes once there is something to keep */
};

static struct connection *connects[MAX_CONNECTS];
static size_t connect_count, first_served;

static struct connection *find(const struct stream *stream, uint32_t id)
{
	for (size_t i = 0; i < connect_count; i++)
		if (connects[i]->stream == stream && connects[i]->id == id)
			return connects[i];
	return NULL;
}

static void remove_connect(struct connection *connection)
{
	size_t place = 0;
	while (connects[place] != connection)
		place++;
	memmove(connects + place, connects + place + 1, (--connect_count - place) * sizeof *connects);
	close(connection->fd);
	free(connection->data);
	free(connection);
}

static void send_end(struct connection *connection, enum ending how)
{
	size_t frame = begin_frame(connection->stream, CONNECT_ENDED, connection->id);
	put_number(connection->stream, how, 1);
	end_frame(connection->stream, frame);
	connection->ended = true;
}

/* Bytes that the server took, or that nobody takes any more, make room for as many. */
static void grant(struct connection *connection)
{
	uint64_t next = connection->received - connection->waiting + WINDOW;
	if (next - connection->granted < GRANT_STEP)
		return;
	connection->granted = next;
	size_t frame = begin_frame(connection->stream, CONNECT_GRANT, connection->id);
	put_number(connection->stream, next, 8);
	end_frame(connection->stream, frame);
}

static void answer_connected(struct connection *connection)
{
	connection->connecting = false;
	size_t frame = begin_frame(connection->stream, DONE, connection->request);
	put_number(connection->stream, connection->granted, 8);
	end_frame(connection->stream, frame);
}

static void refuse(struct connection *connection, int error)
{
	send_failed(connection->stream, connection->request, CANNOT_CONNECT, strerror(error));
	remove_connect(connection);
}

/* The loopback address of ADDRESS_SIZE bytes, 127.0.0.0/8 as ::ffff:127.0.0.0/104; returns 0 if it is no such. */
static socklen_t read_address(const uint8_t *address, uint32_t port, struct sockaddr_storage *found)
{
	static const uint8_t mapped[13] = {[10] = 0xff, 0xff, 127};
	memset(found, 0, sizeof *found);
	if (!port || port > UINT16_MAX)
		return 0;
	if (!memcmp(address, mapped, sizeof mapped)) {
		struct sockaddr_in *v4 = (struct sockaddr_in *)found;
		v4->sin_family = AF_INET;
		v4->sin_port = htons((uint16_t)port);
		memcpy(&v4->sin_addr, address + 12, 4);
		return sizeof *v4;
	}
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)found;
	v6->sin6_family = AF_INET6;
	v6->sin6_port = htons((uint16_t)port);
	v6->sin6_addr = in6addr_loopback;
	return memcmp(address, &in6addr_loopback, ADDRESS_SIZE) ? 0 : sizeof *v6;
}

static struct connection *add_connect(struct stream *stream, uint32_t request, uint32_t id, int family)
{
	struct connection *connection = connect_count < MAX_CONNECTS ? calloc(1, sizeof *connection) : NULL;
	if (!connection)
		return NULL;
	*connection = (struct connection){.stream = stream, .request = request, .id = id, .connecting = true, .granted = WINDOW};
	connection->fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (connection->fd < 0) {
		free(connection);
		return NULL;
	}
	setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
	connects[connect_count++] = connection;
	return connection;
}

static void open_connect(struct stream *stream, uint32_t request, struct fields *fields)
{
	struct sockaddr_storage address;
	uint32_t id = take_number(fields, 4), window = take_number(fields, 4), port = take_number(fields, 2);
	bool complete = !fields->bad && fields->left == ADDRESS_SIZE && !find(stream, id);
	socklen_t size = complete ? read_address(fields->data, port, &address) : 0;
	if (!size) {
		send_failed(stream, request, BAD_REQUEST, "the request is not complete, or leads elsewhere");
		return;
	}
	struct connection *connection = add_connect(stream, request, id, address.ss_family);
	if (!connection) {
		send_failed(stream, request, TOO_MANY, "the limit of " TEXT_OF(MAX_CONNECTS) " connections is reached");
		return;
	}
	connection->window = window;
	if (connect(connection->fd, (struct sockaddr *)&address, size) == 0)
		answer_connected(connection);
	else if (errno != EINPROGRESS)
		refuse(connection, errno);
}

static void drop_waiting(struct connection *connection)
{
	connection->deaf = true;
	connection->waiting = 0;
	free(connection->data);
	connection->data = NULL;
}

/* As much as the server takes now. */
static void pass_waiting(struct connection *connection)
{
	while (connection->waiting) {
		ssize_t put = send(connection->fd, connection->data, connection->waiting, MSG_NOSIGNAL);
		if (put < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		if (put < 0) {
			drop_waiting(connection);
			break;
		}
		connection->waiting -= (size_t)put;
		memmove(connection->data, connection->data + put, connection->waiting);
	}
	grant(connection);
}

/* Bytes for the server. A client that sends more than it may breaks the protocol, and loses its stream. */
static void take_bytes(struct connection *connection, const struct fields *fields)
{
	if (fields->left > connection->granted - connection->received) {
		connection->stream->broken = true;
		return;
	}
	connection->received += fields->left;
	if (connection->deaf || !fields->left) {
		grant(connection);
		return;
	}
	if (!connection->data && !(connection->data = malloc(WINDOW))) {
		drop_waiting(connection);
		return;
	}
	memcpy(connection->data + connection->waiting, fields->data, fields->left);
	connection->waiting += fields->left;
	if (!connection->connecting)
		pass_waiting(connection);
}

static void take_credit(struct connection *connection, struct fields *fields)
{
	uint64_t window = take_offset(fields);
	if (!fields->bad && window > connection->window)
		connection->window = window;
}

/* Nothing is said about a connection that is not there: its client has closed it, or was refused. */
void handle_connect(struct stream *stream, uint8_t type, uint32_t request, struct fields *fields)
{
	if (type == CONNECT) {
		open_connect(stream, request, fields);
		return;
	}
	struct connection *connection = find(stream, take_number(fields, 4));
	if (!connection)
		return;
	if (type == CONNECT_SEND) {
		take_bytes(connection, fields);
	} else if (type == CONNECT_CREDIT) {
		take_credit(connection, fields);
	} else {
		remove_connect(connection);
	}
}

void connects_leave(const struct stream *stream)
{
	for (size_t i = connect_count; i-- > 0;)
		if (connects[i]->stream == stream)
			remove_connect(connects[i]);
}

static bool may_send(const struct connection *connection)
{
	return !connection->connecting && !connection->ended && connection->sent < connection->window && unsent(connection->stream) < FILL;
}

int connects_poll(struct pollfd *sources)
{
	for (size_t i = 0; i < connect_count; i++) {
		const struct connection *connection = connects[i];
		short events = connection->connecting || connection->waiting ? POLLOUT : 0;
		if (may_send(connection))
			events |= POLLIN;
		sources[i] = (struct pollfd){.fd = events ? connection->fd : -1, .events = events};
	}
	return (int)connect_count;
}

static void finish_connecting(struct connection *connection)
{
	int error = 0;
	socklen_t size = sizeof error;
	getsockopt(connection->fd, SOL_SOCKET, SO_ERROR, &error, &size);
	if (error) {
		refuse(connection, error);
		return;
	}
	answer_connected(connection);
	pass_waiting(connection);
}

/* One piece, so that others have their turn. */
static void send_piece(struct connection *connection)
{
	static uint8_t piece[FRAME];
	uint64_t room = connection->window - connection->sent;
	ssize_t got = recv(connection->fd, piece, room < sizeof piece ? (size_t)room : sizeof piece, 0);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got <= 0) {
		send_end(connection, got ? BROKEN : COMPLETE);
		return;
	}
	size_t frame = begin_frame(connection->stream, CONNECT_DATA, connection->id);
	put_bytes(connection->stream, piece, (size_t)got);
	end_frame(connection->stream, frame);
	connection->sent += (uint64_t)got;
}

static void serve_connect(struct connection *connection, short events)
{
	if (connection->connecting) {
		finish_connecting(connection);
		return;
	}
	if (connection->waiting)
		pass_waiting(connection);
	if (events & (POLLIN | POLLHUP | POLLERR) && may_send(connection))
		send_piece(connection);
}

/* From another one each time, as the first ones may leave the others no room. Only one that is still connecting goes away
 * here, which is served from the last one on.
 */
void connects_serve(const struct pollfd *sources, size_t count)
{
	size_t first = count ? first_served++ % count : 0;
	for (size_t i = 0; i < count; i++) {
		size_t place = (first + i) % count;
		if (sources[place].revents && !connects[place]->connecting)
			serve_connect(connects[place], sources[place].revents);
	}
	for (size_t i = count; i-- > 0;)
		if (sources[i].revents && connects[i]->connecting)
			serve_connect(connects[i], sources[i].revents);
}
