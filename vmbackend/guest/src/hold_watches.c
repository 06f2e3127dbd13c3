/* The watches: a process for each, whose events are passed on as far as their client's window goes. */
#define _GNU_SOURCE
#include "hold_watches.h"

#include "guest.h"
#include "hold_frames.h"
#include "hold_state.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EVENT_SIZE (2 * MAX_PATH_SIZE + 64)
#define FIRST_EVENT 1 /* of a watch that is ready */
#define LAST_EVENT 7
#define CHANGED 3
#define NO_WATCH_ID 0
#define EMPTY_EVENT 10 /* bytes: kind, whether it is of a folder, two empty texts */
#define FRAME_HEAD 9  /* bytes of an event's frame before its fields */

struct watch {
	uint32_t id, request;
	struct stream *stream;
	pid_t pid;
	int fd;
	bool ready;
	uint64_t sent, received;
	uint32_t window;
	uint8_t event[EVENT_SIZE]; /* being read: its length, its fields */
	size_t size;
};

static struct watch *watches[MAX_WATCHES];
static size_t watch_count;

static void remove_watch(struct watch *watch)
{
	size_t place = 0;
	close(watch->fd);
	kill(watch->pid, SIGKILL); /* reaped with the terminals' programs */
	while (watches[place] != watch)
		place++;
	memmove(watches + place, watches + place + 1, (--watch_count - place) * sizeof *watches);
	free(watch);
}

void watches_leave(const struct stream *stream)
{
	for (size_t i = watch_count; i-- > 0;)
		if (watches[i]->stream == stream)
			remove_watch(watches[i]);
}

static void exec_watch(int output, char *path, char **patterns)
{
	size_t count = 0;
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_IGN);
	set_oom("0");
	while (patterns[count])
		count++;
	char **argv = calloc(count + 4, sizeof *argv);
	dup2(output, STDOUT_FILENO);
	if (argv) {
		memcpy(argv, (char *[]){"guest", "watch", path}, 3 * sizeof *argv);
		memcpy(argv + 3, patterns, count * sizeof *argv);
		execv("/proc/self/exe", argv);
	}
	_exit(EXIT_CANNOT_RUN);
}

static bool start_watch(struct watch *watch, char *path, char **patterns)
{
	int ends[2];
	if (pipe2(ends, O_CLOEXEC))
		return false;
	watch->pid = fork();
	if (!watch->pid)
		exec_watch(ends[1], path, patterns);
	close(ends[1]);
	watch->fd = ends[0];
	if (watch->pid < 0)
		close(ends[0]);
	return watch->pid > 0;
}

/* A connection whose end was not noticed, as the machine slept, ends by the first byte that is sent on it: its watches
 * must not count until its server's next keepalive. The event is of no watch, and its client ignores it.
 */
static void probe_others(const struct stream *stream)
{
	for (size_t i = 0; i < watch_count; i++) {
		struct stream *other = watches[i]->stream;
		if (other == stream || unsent(other))
			continue;
		size_t frame = begin_frame(other, EVENT, NO_WATCH_ID);
		put_bytes(other, (uint8_t[EMPTY_EVENT]){CHANGED}, EMPTY_EVENT);
		end_frame(other, frame);
	}
}

static void add_watch(struct stream *stream, uint32_t request, uint32_t window, char *path, char **patterns)
{
	static uint32_t last;
	struct watch *watch = watch_count < MAX_WATCHES && stream->pending < MAX_PENDING ? calloc(1, sizeof *watch) : NULL;
	if (!watch) {
		probe_others(stream);
		send_failed(stream, request, TOO_MANY, "the limit of " TEXT_OF(MAX_WATCHES) " watches is reached");
		return;
	}
	if (!start_watch(watch, path, patterns)) {
		send_failed(stream, request, CANNOT_WATCH, strerror(errno));
		free(watch);
		return;
	}
	watch->id = ++last;
	watch->request = request;
	watch->stream = stream;
	watch->window = window;
	watches[watch_count++] = watch;
	stream->pending++;
}

static struct watch *find_watch(const struct stream *stream, uint32_t id)
{
	for (size_t i = 0; i < watch_count; i++)
		if (watches[i]->id == id && watches[i]->stream == stream && watches[i]->ready)
			return watches[i];
	return NULL;
}

static void end_one(struct stream *stream, uint32_t request, struct watch *watch)
{
	if (!watch) {
		send_failed(stream, request, NO_WATCH, "there is no such watch");
		return;
	}
	remove_watch(watch);
	send_done(stream, request);
}

static void credit(struct watch *watch, struct fields *fields)
{
	uint64_t received = take_offset(fields);
	uint32_t window = take_number(fields, 4);
	if (!watch || fields->bad || received < watch->received || received > watch->sent)
		return;
	watch->received = received;
	watch->window = window;
}

void handle_watch(struct stream *stream, uint8_t type, uint32_t request, struct fields *fields)
{
	uint32_t first = take_number(fields, 4); /* the window, or the watch */
	if (type == WATCH_CREDIT) {
		credit(find_watch(stream, first), fields);
		return;
	}
	if (type == UNWATCH) {
		end_one(stream, request, find_watch(stream, first));
		return;
	}
	char *path = take_text(fields, MAX_PATH_SIZE - 1), **patterns = take_words(fields);
	if (fields->bad || fields->left || *path != '/')
		send_failed(stream, request, BAD_REQUEST, "the request is not complete");
	else
		add_watch(stream, request, first, path, patterns);
	free(path);
	free_words(patterns);
}

static bool may_send(const struct watch *watch)
{
	return !watch->ready || (watch->sent < watch->received + watch->window && unsent(watch->stream) < OUT_FILL);
}

/* The answer to WATCH: with an id if its first event says so, else its process could not begin. */
static void answer(struct watch *watch, uint8_t kind, struct fields *fields)
{
	char *reason = NULL;
	watch->stream->pending--;
	if (kind == FIRST_EVENT) {
		watch->ready = true;
		size_t frame = begin_frame(watch->stream, DONE, watch->request);
		put_number(watch->stream, watch->id, 4);
		end_frame(watch->stream, frame);
		return;
	}
	take_number(fields, 1);
	free(take_text(fields, MAX_PATH_SIZE));
	reason = take_text(fields, MAX_PATH_SIZE);
	send_failed(watch->stream, watch->request, CANNOT_WATCH, reason ? reason : "its process has ended");
	free(reason);
	remove_watch(watch);
}

static void pass_on(struct watch *watch)
{
	struct fields fields = {.data = watch->event + 4, .left = watch->size - 4};
	uint8_t kind = (uint8_t)take_number(&fields, 1);
	watch->size = 0;
	if (!watch->ready) {
		answer(watch, kind, &fields);
		return;
	}
	size_t frame = begin_frame(watch->stream, EVENT, watch->id);
	put_number(watch->stream, kind, 1);
	put_bytes(watch->stream, fields.data, fields.left);
	end_frame(watch->stream, frame);
	watch->sent += FRAME_HEAD + 1 + fields.left;
	if (kind == LAST_EVENT)
		remove_watch(watch);
}

/* Its process ended by itself, which only the machine's root can bring about. */
static void handle_end(struct watch *watch)
{
	static uint8_t gone[] = {0, 0, 0, 0, LAST_EVENT, 1, 0, 0, 0, 0, 0, 0, 0, 0};
	memcpy(watch->event, gone, sizeof gone);
	watch->size = sizeof gone;
	pass_on(watch);
}

static void read_event(struct watch *watch)
{
	struct fields head = {.data = watch->event, .left = 4};
	size_t wanted = watch->size < 4 ? 4 : (size_t)4 + take_number(&head, 4);
	ssize_t got = wanted > EVENT_SIZE ? 0 : read(watch->fd, watch->event + watch->size, wanted - watch->size);
	if (got < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (got <= 0) {
		handle_end(watch);
		return;
	}
	watch->size += (size_t)got;
	if (watch->size > 4 && watch->size == wanted)
		pass_on(watch);
}

int watch_poll(struct pollfd *sources)
{
	for (size_t i = 0; i < watch_count; i++)
		sources[i] = (struct pollfd){.fd = may_send(watches[i]) ? watches[i]->fd : -1, .events = POLLIN};
	return (int)watch_count;
}

/* From the last one on, as they may be removed. Events are small and many: as long as there are any. */
void watch_serve(const struct pollfd *sources, size_t count)
{
	for (size_t i = count; i-- > 0;) {
		struct pollfd again = sources[i];
		const struct watch *watch = watches[i];
		while (again.fd >= 0 && again.revents && watch_count > i && watches[i] == watch && may_send(watch)) {
			read_event(watches[i]);
			if (watch_count <= i || watches[i] != watch || poll(&again, 1, 0) <= 0)
				break;
		}
	}
}
