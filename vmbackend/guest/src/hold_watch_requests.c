/* What clients ask of watches: of their own, and of those that are kept for all. */
#include "hold_watch_requests.h"

#include "guest.h"
#include "hold_frames.h"
#include "hold_rings.h"
#include "hold_state.h"
#include "hold_watches.h"

#include <stdlib.h>
#include <string.h>

#define MAX_SHOWN (20 << 10) /* bytes of path and patterns of a kept one: an answer has all of them */

static struct watch *find_watch(const struct stream *stream, uint32_t id)
{
	for (size_t i = 0; i < watch_count; i++)
		if (watches[i]->id == id && !watches[i]->ring && watches[i]->stream == stream && watches[i]->ready)
			return watches[i];
	return NULL;
}

static struct watch *find_kept(uint32_t id)
{
	for (size_t i = 0; i < watch_count; i++)
		if (watches[i]->id == id && watches[i]->ring && watches[i]->ready)
			return watches[i];
	return NULL;
}

static void end_one(struct stream *stream, uint32_t request, struct watch *watch)
{
	watch_remove(watch);
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

static size_t shown_size(const char *path, char **patterns)
{
	size_t size = strlen(path);
	for (; *patterns; patterns++)
		size += 4 + strlen(*patterns);
	return size;
}

/* Takes the texts of one that is kept. */
static void begin(struct stream *stream, uint32_t request, const uint32_t *window, char **path, char ***patterns)
{
	struct watch *watch = watch_add(stream, request, !window, *path, *patterns);
	if (watch && window)
		watch->window = *window;
	if (!watch || window)
		return;
	watch->path = *path;
	watch->patterns = *patterns;
	*path = NULL;
	*patterns = NULL;
}

/* WINDOW: NULL for one that is kept. */
static void add_watch(struct stream *stream, uint32_t request, const uint32_t *window, struct fields *fields)
{
	char *path = take_text(fields, MAX_PATH_SIZE - 1), **patterns = take_words(fields);
	if (fields->bad || fields->left || *path != '/' || (!window && shown_size(path, patterns) > MAX_SHOWN))
		send_failed(stream, request, BAD_REQUEST, "the request is not complete");
	else
		begin(stream, request, window, &path, &patterns);
	free(path);
	free_words(patterns);
}

static void list_kept(struct stream *stream, uint32_t request)
{
	size_t frame = begin_frame(stream, DONE, request);
	for (size_t i = 0; i < watch_count; i++)
		if (watches[i]->ring && watches[i]->ready)
			put_number(stream, watches[i]->id, 4);
	end_frame(stream, frame);
}

static void show_kept(struct stream *stream, uint32_t request, const struct watch *watch)
{
	size_t frame = begin_frame(stream, DONE, request);
	put_number(stream, watch->over, 1);
	put_number(stream, watch->folders, 4);
	put_number(stream, ring_start(watch->ring), 8);
	put_number(stream, ring_end(watch->ring), 8);
	put_text(stream, watch->path);
	put_words(stream, watch->patterns);
	end_frame(stream, frame);
}

static void read_kept(struct stream *stream, uint32_t request, struct watch *watch, struct fields *fields)
{
	uint64_t number = take_offset(fields);
	if (fields->bad || fields->left || number > ring_end(watch->ring))
		send_failed(stream, request, BAD_OFFSET, "the watch has not had that many events");
	else if (!ring_read(watch->ring, stream, request, number))
		send_failed(stream, request, TOO_MANY, "too many read the watch");
}

static void handle_kept(struct stream *stream, uint8_t type, uint32_t request, struct fields *fields)
{
	if (type == KEEP_WATCH) {
		add_watch(stream, request, NULL, fields);
		return;
	}
	if (type == KEPT_LIST) {
		list_kept(stream, request);
		return;
	}
	struct watch *watch = find_kept(take_number(fields, 4));
	if (!watch)
		send_failed(stream, request, NO_WATCH, "there is no such watch");
	else if (type == KEPT_SHOW)
		show_kept(stream, request, watch);
	else if (type == KEPT_READ)
		read_kept(stream, request, watch, fields);
	else
		end_one(stream, request, watch);
}

void handle_watch(struct stream *stream, uint8_t type, uint32_t request, struct fields *fields)
{
	if (type >= KEEP_WATCH) {
		handle_kept(stream, type, request, fields);
		return;
	}
	uint32_t first = take_number(fields, 4); /* the window, or the watch */
	struct watch *watch = type == WATCH ? NULL : find_watch(stream, first);
	if (type == WATCH)
		add_watch(stream, request, &first, fields);
	else if (type == WATCH_CREDIT)
		credit(watch, fields);
	else if (watch)
		end_one(stream, request, watch);
	else
		send_failed(stream, request, NO_WATCH, "there is no such watch");
}
