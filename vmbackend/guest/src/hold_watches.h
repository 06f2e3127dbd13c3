#ifndef HOLD_WATCHES_H
#define HOLD_WATCHES_H

#include "hold_protocol.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MAX_WATCHES 8
#define EVENT_SIZE (2 * MAX_PATH_SIZE + 64)

struct pollfd;
struct ring;
struct stream;

struct watch {
	uint32_t id, request;
	struct stream *stream; /* whose it is; of a kept one, who has asked for it, until it is ready */
	pid_t pid;
	int fd; /* -1: its process has ended */
	bool ready;
	uint64_t sent, received;
	uint32_t window;
	struct ring *ring; /* of a kept one, as what follows */
	char *path, **patterns;
	uint32_t folders; /* when it was ready */
	bool over;        /* its last event is in the ring */
	uint8_t event[EVENT_SIZE]; /* being read: its length, its fields */
	size_t size;
};

extern struct watch *watches[MAX_WATCHES];
extern size_t watch_count;

/* NULL: the request was refused. PATTERNS end with NULL. */
struct watch *watch_add(struct stream *stream, uint32_t request, bool is_kept, char *path, char **patterns);
void watch_remove(struct watch *watch);
void watches_leave(const struct stream *stream); /* its connection is gone */
int watch_poll(struct pollfd *sources);          /* one for each; returns how many */
void watch_serve(const struct pollfd *sources, size_t count);
int watches_expire(void); /* answers who waits; returns milliseconds until the next call, or -1 */

#endif
