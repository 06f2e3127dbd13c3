/* The watches: a process for each. Events go to the connection that has asked for them, as far as its window goes; those of
 * a kept one into its ring.
 */
#define _GNU_SOURCE
#include "hold_watches.h"

#include "guest.h"
#include "hold_changes.h"
#include "hold_frames.h"
#include "hold_rings.h"
#include "hold_state.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FIRST_EVENT 1 /* of a watch that is ready */
#define LAST_EVENT 7
#define CHANGED 3
#define NO_WATCH_ID 0
#define EMPTY_EVENT 10 /* bytes: kind, whether it is of a folder, two empty texts */
#define FRAME_HEAD 9  /* bytes of an event's frame before its fields */

#ifndef UNREAD_MS        /* tests have a shorter one */
#define UNREAD_MS 600000 /* a kept watch that nobody reads */
#endif
#define TURN_EVENTS 512 /* of a watch, before others are served */
#define OVER_MS 60000 /* one that has ended, for readers of its last events */

struct watch *watches[MAX_WATCHES];
size_t watch_count;

static void end_process(struct watch *watch)
{
	if (watch->fd < 0)
		return;
	close(watch->fd);
	watch->fd = -1;
	kill(watch->pid, SIGKILL); /* reaped with the terminals' programs */
}

void watch_remove(struct watch *watch)
{
	size_t place = 0;
	end_process(watch);
	if (watch->ring) {
		ring_close(watch->ring);
		change_note();
	}
	free(watch->path);
	free_words(watch->patterns);
	while (watches[place] != watch)
		place++;
	memmove(watches + place, watches + place + 1, (--watch_count - place) * sizeof *watches);
	free(watch);
}

/* One that is kept goes on, unless nobody has been told of it. */
void watches_leave(const struct stream *stream)
{
	for (size_t i = watch_count; i-- > 0;) {
		if (watches[i]->ring)
			ring_leave(watches[i]->ring, stream);
		if (watches[i]->stream == stream)
			watch_remove(watches[i]);
	}
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
		if (!other || other == stream || unsent(other))
			continue;
		size_t frame = begin_frame(other, EVENT, NO_WATCH_ID);
		put_bytes(other, (uint8_t[EMPTY_EVENT]){CHANGED}, EMPTY_EVENT);
		end_frame(other, frame);
	}
}

/* The place of one that has ended is free. */
static void drop_over(void)
{
	for (size_t i = watch_count; watch_count == MAX_WATCHES && i-- > 0;)
		if (watches[i]->over)
			watch_remove(watches[i]);
}

static uint32_t new_id(bool is_kept)
{
	static uint32_t last;
	uint32_t id = 0;
	if (!is_kept)
		return ++last;
	/* Of another process, or of one that has ended, it must not be that of another folder. */
	while (!id)
		syscall(SYS_getrandom, &id, sizeof id, 0);
	return id;
}

static bool begin_watch(struct watch *watch, bool is_kept, char *path, char **patterns)
{
	watch->ring = is_kept ? ring_open() : NULL;
	if ((!is_kept || watch->ring) && start_watch(watch, path, patterns))
		return true;
	if (watch->ring)
		ring_close(watch->ring);
	return false;
}

struct watch *watch_add(struct stream *stream, uint32_t request, bool is_kept, char *path, char **patterns)
{
	drop_over();
	struct watch *watch = watch_count < MAX_WATCHES && stream->pending < MAX_PENDING ? calloc(1, sizeof *watch) : NULL;
	if (!watch) {
		probe_others(stream);
		send_failed(stream, request, TOO_MANY, "the limit of " TEXT_OF(MAX_WATCHES) " watches is reached");
		return NULL;
	}
	if (!begin_watch(watch, is_kept, path, patterns)) {
		send_failed(stream, request, CANNOT_WATCH, strerror(errno));
		free(watch);
		return NULL;
	}
	watch->id = new_id(is_kept);
	watch->request = request;
	watch->stream = stream;
	watches[watch_count++] = watch;
	stream->pending++;
	return watch;
}

static bool may_send(const struct watch *watch)
{
	return !watch->ready || watch->ring || (watch->sent < watch->received + watch->window && unsent(watch->stream) < OUT_FILL);
}

static void be_ready(struct watch *watch, struct fields *fields)
{
	take_number(fields, 1);
	free(take_text(fields, MAX_PATH_SIZE));
	char *folders = take_text(fields, MAX_PATH_SIZE);
	watch->folders = folders ? (uint32_t)strtoul(folders, NULL, 10) : 0;
	free(folders);
	watch->ready = true;
	size_t frame = begin_frame(watch->stream, DONE, watch->request);
	put_number(watch->stream, watch->id, 4);
	if (watch->ring)
		put_number(watch->stream, watch->folders, 4);
	end_frame(watch->stream, frame);
	if (!watch->ring)
		return;
	watch->stream = NULL;
	change_note();
}

/* The answer to WATCH or KEEP_WATCH: with an id if its first event says so, else its process could not begin. */
static void answer(struct watch *watch, uint8_t kind, struct fields *fields)
{
	char *reason = NULL;
	watch->stream->pending--;
	if (kind == FIRST_EVENT) {
		be_ready(watch, fields);
		return;
	}
	take_number(fields, 1);
	free(take_text(fields, MAX_PATH_SIZE));
	reason = take_text(fields, MAX_PATH_SIZE);
	send_failed(watch->stream, watch->request, CANNOT_WATCH, reason ? reason : "its process has ended");
	free(reason);
	watch_remove(watch);
}

/* Its last event stays for a while. */
static void keep_event(struct watch *watch, uint8_t kind, const uint8_t *event, size_t size)
{
	ring_add(watch->ring, event, size);
	if (kind != LAST_EVENT)
		return;
	watch->over = true;
	end_process(watch);
	change_note();
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
	if (watch->ring) {
		keep_event(watch, kind, fields.data - 1, fields.left + 1);
		return;
	}
	size_t frame = begin_frame(watch->stream, EVENT, watch->id);
	put_number(watch->stream, kind, 1);
	put_bytes(watch->stream, fields.data, fields.left);
	end_frame(watch->stream, frame);
	watch->sent += FRAME_HEAD + 1 + fields.left;
	if (kind == LAST_EVENT)
		watch_remove(watch);
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

/* From the last one on, as they may be removed. Events are small and many: some of them at a time. */
void watch_serve(const struct pollfd *sources, size_t count)
{
	for (size_t i = count; i-- > 0;) {
		struct pollfd again = sources[i];
		const struct watch *watch = watches[i];
		for (int left = TURN_EVENTS; left && again.fd >= 0 && again.revents && may_send(watch); left--) {
			read_event(watches[i]);
			if (watch_count <= i || watches[i] != watch || watch->fd < 0 || poll(&again, 1, 0) <= 0)
				break;
		}
	}
}

static long long expires_at(const struct watch *watch)
{
	long long since = ring_unread_since(watch->ring);
	return since < 0 ? -1 : since + (watch->over ? OVER_MS : UNREAD_MS);
}

int watches_expire(void)
{
	int wait = -1;
	for (size_t i = watch_count; i-- > 0;) {
		struct watch *watch = watches[i];
		if (!watch->ring || !watch->ready)
			continue;
		if (ring_serve(watch->ring) && watch->over)
			ring_refuse(watch->ring); /* who has its last event */
		long long at = expires_at(watch), now = now_ms();
		if (at >= 0 && at <= now)
			watch_remove(watch);
		else if (at >= 0)
			wait = shorter_wait(wait, (int)(at - now));
	}
	return wait;
}
