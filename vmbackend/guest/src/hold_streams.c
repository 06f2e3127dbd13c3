/* The attached streams: frames from their input, answers and output to theirs. */
#define _GNU_SOURCE
#include "hold_streams.h"

#include "hold_commands.h"
#include "hold_connects.h"
#include "hold_frames.h"
#include "hold_input.h"
#include "hold_requests.h"
#include "hold_state.h"
#include "hold_task_followers.h"
#include "hold_task_requests.h"
#include "hold_views.h"
#include "hold_watches.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEAD 9 /* bytes of length, type and id */
#define FIRST_CAPACITY 4096
#define TURN_PIECES 128 /* of tasks' outputs, before others are served */

/* `guest attach` sends its standard input and output along with one byte. */
static bool receive_descriptors(int control, int descriptors[2])
{
	char byte, space[CMSG_SPACE(2 * sizeof(int))] = {0};
	struct iovec data = {&byte, 1};
	struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
	struct timeval limit = {.tv_sec = 5};
	setsockopt(control, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	struct cmsghdr *header = recvmsg(control, &message, MSG_CMSG_CLOEXEC) == 1 ? CMSG_FIRSTHDR(&message) : NULL;
	if (!header || header->cmsg_type != SCM_RIGHTS || header->cmsg_len != CMSG_LEN(2 * sizeof(int)))
		return false;
	memcpy(descriptors, CMSG_DATA(header), 2 * sizeof(int));
	for (int i = 0; i < 2; i++)
		fcntl(descriptors[i], F_SETFL, fcntl(descriptors[i], F_GETFL) | O_NONBLOCK);
	return true;
}

void stream_accept(int listener)
{
	int descriptors[2] = {-1, -1}, control = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (control < 0)
		return;
	struct stream *stream = stream_count < MAX_STREAMS ? calloc(1, sizeof *stream) : NULL;
	if (!stream || !receive_descriptors(control, descriptors)) {
		free(stream);
		close(control);
		return;
	}
	stream->control = control;
	stream->in = descriptors[0];
	stream->out = descriptors[1];
	streams[stream_count++] = stream;
}

static void stream_close(struct stream *stream)
{
	size_t place = 0;
	commands_leave(stream);
	connects_leave(stream);
	tasks_leave(stream);
	views_leave(stream);
	watches_leave(stream);
	for (size_t i = 0; i < terminal_count; i++) {
		input_forget(terminals[i], stream);
		if (terminals[i]->creator == stream)
			terminals[i]->creator = NULL;
	}
	close(stream->in);
	close(stream->out);
	close(stream->control);
	while (streams[place] != stream)
		place++;
	memmove(streams + place, streams + place + 1, (--stream_count - place) * sizeof *streams);
	free(stream->request);
	free(stream);
}

static size_t wanted_size(const struct stream *stream)
{
	struct fields head = {.data = stream->request, .left = stream->request_size};
	return stream->request_size < HEAD ? HEAD : (size_t)4 + take_number(&head, 4);
}

static void handle_request(struct stream *stream)
{
	struct fields fields = {.data = stream->request + 4, .left = stream->request_size - 4};
	uint8_t type = (uint8_t)take_number(&fields, 1);
	uint32_t request = take_number(&fields, 4);
	stream->request_size = 0;
	handle_frame(stream, type, request, &fields);
	if (stream->request_capacity > FIRST_CAPACITY) { /* little memory between large requests */
		free(stream->request);
		stream->request = NULL;
		stream->request_capacity = 0;
	}
}

static bool make_space(struct stream *stream, size_t wanted)
{
	if (wanted <= stream->request_capacity)
		return true;
	size_t capacity = wanted < FIRST_CAPACITY ? FIRST_CAPACITY : wanted;
	uint8_t *space = realloc(stream->request, capacity);
	if (!space)
		return false;
	stream->request = space;
	stream->request_capacity = capacity;
	return true;
}

/* Of the frame that is being read. */
static bool is_length_allowed(const struct stream *stream)
{
	size_t wanted = wanted_size(stream);
	return wanted >= HEAD && wanted <= MAX_REQUEST;
}

/* One read of a frame's head or of the rest of it. */
static void read_request(struct stream *stream)
{
	size_t wanted = wanted_size(stream);
	if (!make_space(stream, wanted)) {
		stream->broken = true;
		return;
	}
	ssize_t got = read(stream->in, stream->request + stream->request_size, wanted - stream->request_size);
	if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
		stream->broken = true;
	if (got <= 0)
		return;
	stream->request_size += (size_t)got;
	if (!is_length_allowed(stream)) {
		send_failed(stream, 0, BAD_REQUEST, "the frame's length is not allowed");
		stream->broken = true;
	} else if (stream->request_size >= HEAD && stream->request_size == wanted_size(stream)) {
		handle_request(stream);
	}
}

static void send_outputs(struct stream *stream, int *pieces)
{
	send_output(stream);
	send_task_output(stream, pieces);
}

static void write_answers(struct stream *stream)
{
	int pieces = TURN_PIECES;
	if (stream->greeted)
		send_outputs(stream, &pieces);
	while (unsent(stream)) {
		ssize_t put = write(stream->out, stream->answer + stream->answer_start, unsent(stream));
		if (put < 0) {
			stream->broken = stream->broken || (errno != EAGAIN && errno != EINTR);
			return;
		}
		stream->answer_start += (size_t)put;
		if (!unsent(stream)) {
			stream->answer_start = stream->answer_end = 0;
			if (stream->greeted)
				send_outputs(stream, &pieces);
		}
	}
}

/* Replaced by a new connection of their client: closed at once, not with their next event. Or there is more to send. */
bool streams_hurry(void)
{
	for (size_t i = 0; i < stream_count; i++)
		if (streams[i]->broken || (streams[i]->has_more && unsent(streams[i]) < OUT_FILL))
			return true;
	return false;
}

int stream_poll(struct pollfd *sources)
{
	for (size_t i = 0; i < stream_count; i++, sources += 3) {
		struct stream *stream = streams[i];
		bool reading = unsent(stream) < OUT_LOW;
		sources[0] = (struct pollfd){.fd = reading ? stream->in : -1, .events = POLLIN};
		sources[1] = (struct pollfd){.fd = stream->out, .events = unsent(stream) ? POLLOUT : 0};
		sources[2] = (struct pollfd){.fd = stream->control, .events = POLLIN};
	}
	return (int)(3 * stream_count);
}

/* Output of terminals is written at once, without another poll. Streams from the last one on, as they may be closed. */
void stream_serve(const struct pollfd *sources, size_t count)
{
	for (size_t i = count; i-- > 0;) {
		struct stream *stream = streams[i];
		if (sources[3 * i].revents && !stream->broken)
			read_request(stream);
		if (sources[3 * i + 2].revents || sources[3 * i + 1].revents & (POLLERR | POLLNVAL))
			stream->broken = true;
		write_answers(stream);
		if (stream->broken || stream->leaving)
			stream_close(stream);
	}
}
