/* Events on their way to the reader, in order. Each waits for a moment: a later change of the same file is part of it. */
#define _GNU_SOURCE
#include "watch_events.h"

#include "guest.h"
#include "watch_halves.h"
#include "watch_memory.h"
#include "watch_tree.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUCKETS 4096
#define MAX_PENDING_EVENTS 65536
#define MAX_PENDING_BYTES (8 << 20)
#define SLOW_READER_MS 1000 /* without room for a byte, when more cannot wait */
#define FRAME_SIZE (2 * MAX_WATCH_PATH + 64)

struct event {
	struct event *next, *next_in_bucket;
	long long due;
	enum event_kind kind;
	bool is_folder;
	unsigned hash, generation;
	char *other; /* allocated */
	char text[];
};

static struct event *first, **last = &first, *newest_event, *buckets[BUCKETS];
static size_t count, bytes;
static uint8_t frame[FRAME_SIZE];
static size_t frame_start, frame_end;
static unsigned generation; /* since a path was given up: the same path means another file then */

static unsigned hash_of(const char *text)
{
	unsigned hash = 2166136261u;
	for (; *text; text++)
		hash = (hash ^ (uint8_t)*text) * 16777619u;
	return hash;
}

static size_t size_of(const struct event *event)
{
	return sizeof *event + strlen(event->text) + strlen(event->other) + 2;
}

static void free_event(struct event *event)
{
	struct event **place = &buckets[event->hash % BUCKETS];
	while (*place && *place != event)
		place = &(*place)->next_in_bucket;
	if (*place)
		*place = event->next_in_bucket;
	count--;
	bytes -= size_of(event);
	halves_sent(event);
	free(event->other);
	free(event);
}

static void remove_first(void)
{
	struct event *event = first;
	first = event->next;
	if (!first)
		last = &first;
	free_event(event);
}

static struct event *newest(const char *path, unsigned hash)
{
	for (struct event *event = buckets[hash % BUCKETS]; event; event = event->next_in_bucket)
		if (event->hash == hash && event->generation == generation && !strcmp(event->text, path))
			return event;
	return NULL;
}

static void append(enum event_kind kind, bool is_folder, const char *path, const char *other, unsigned hash)
{
	struct event *event = get_memory(sizeof *event + strlen(path) + 1);
	event->due = kind == READY ? 0 : now_ms() + SETTLE_MS;
	event->kind = kind;
	event->is_folder = is_folder;
	event->hash = hash;
	event->generation = generation;
	strcpy(event->text, path);
	event->other = copy_text(other);
	newest_event = event;
	*last = event;
	last = &event->next;
	/* The newest of a path comes first. */
	event->next_in_bucket = buckets[hash % BUCKETS];
	buckets[hash % BUCKETS] = event;
	count++;
	bytes += size_of(event);
}

struct event *event_newest(void)
{
	return newest_event;
}

void event_rename(struct event *event, const char *other)
{
	bytes -= size_of(event);
	free(event->other);
	event->kind = RENAMED;
	event->other = copy_text(other);
	bytes += size_of(event);
}

static void put(const void *data, size_t size)
{
	memcpy(frame + frame_end, data, size);
	frame_end += size;
}

static void put_number(uint32_t value)
{
	put((uint8_t[]){(uint8_t)(value >> 24), (uint8_t)(value >> 16), (uint8_t)(value >> 8), (uint8_t)value}, 4);
}

static void put_text(const char *text)
{
	put_number((uint32_t)strlen(text));
	put(text, strlen(text));
}

static void make_frame(const struct event *event)
{
	frame_start = frame_end = 0;
	put_number((uint32_t)(10 + strlen(event->text) + strlen(event->other)));
	put((uint8_t[]){(uint8_t)event->kind, event->is_folder}, 2);
	put_text(event->text);
	put_text(event->other);
}

/* The rest of the frame before, or the first event. False with errno: FD takes no more, or is closed. */
static bool send_first(int fd)
{
	if (frame_start == frame_end) {
		make_frame(first);
		remove_first();
	}
	ssize_t sent = write(fd, frame + frame_start, frame_end - frame_start);
	frame_start += sent > 0 ? (size_t)sent : 0;
	return sent >= 0 || errno == EINTR;
}

static bool is_full(size_t events, size_t size)
{
	return count >= events || bytes >= size;
}

/* A scan may find more than may wait: a reader that takes them is not slow. */
static bool make_room(void)
{
	struct pollfd output = {.fd = STDOUT_FILENO, .events = POLLOUT};
	while (is_full(MAX_PENDING_EVENTS / 4 * 3, MAX_PENDING_BYTES / 4 * 3)) {
		if (send_first(output.fd))
			continue;
		if (errno != EAGAIN || poll(&output, 1, SLOW_READER_MS) <= 0)
			return false;
	}
	return true;
}

void event_add(enum event_kind kind, bool is_folder, const char *path, const char *other)
{
	unsigned hash = hash_of(path);
	const struct event *before = kind == CHANGED ? newest(path, hash) : NULL;
	if (before && (before->kind == ADDED || before->kind == CHANGED))
		return;
	if (is_full(MAX_PENDING_EVENTS, MAX_PENDING_BYTES) && !make_room()) {
		while (first)
			remove_first();
		append(OVERFLOWED, true, "", "slow_reader", hash_of(""));
	}
	append(kind, is_folder, path, other, hash);
	generation += kind == REMOVED;
}

int events_send(int fd)
{
	while (first || frame_start < frame_end) {
		long long rest = frame_start < frame_end ? 0 : first->due - now_ms();
		if (rest > 0)
			return (int)rest;
		if (!send_first(fd))
			return errno == EAGAIN ? -2 : -3;
	}
	return -1;
}
