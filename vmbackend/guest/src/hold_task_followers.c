/* Who reads a task's log, and how far. The program waits where its log would have to forget what a follower has not
 * received, unless that one has taken nothing for a minute, connected or not.
 */
#define _GNU_SOURCE
#include "hold_task_followers.h"

#include "guest.h"
#include "hold_frames.h"
#include "hold_state.h"
#include "hold_task_reading.h"
#include "hold_task_records.h"
#include "hold_task_table.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#ifndef FOLLOW_MS       /* tests have a shorter one */
#define FOLLOW_MS 60000 /* that a follower who takes nothing is waited for */
#endif
#define PIECE_SIZE (24 << 10)

size_t follower_count;

struct follower *follower_find(const struct task *task, const struct stream *stream, uint32_t id)
{
	struct follower *follower = task->followers;
	while (follower && (follower->stream != stream || follower->id != id))
		follower = follower->next;
	return follower;
}

struct follower *follower_free(struct follower *follower)
{
	struct follower *next = follower->next;
	follower_count--;
	free(follower);
	return next;
}

static void remove_follower(struct task *task, struct follower *gone)
{
	struct follower **place = &task->followers;
	while (*place != gone)
		place = &(*place)->next;
	*place = follower_free(gone);
}

static size_t count_followers(const struct task *task)
{
	size_t count = 0;
	for (const struct follower *each = task->followers; each; each = each->next)
		count++;
	return count;
}

/* One that is gone ends when another has what it was kept for, and when it is back: its last credit may be behind what it
 * has received, but nobody has more than was sent. */
static void drop_gone(struct task *task, uint64_t offset)
{
	bool back = false;
	for (struct follower *each = task->followers, *next; each; each = next) {
		next = each->next;
		if (each->stream || (each->received < offset && (back || each->place.offset < offset)))
			continue;
		back |= each->received < offset;
		remove_follower(task, each);
	}
}

struct follower *follower_add(struct task *task, struct stream *stream, uint32_t id, uint64_t offset)
{
	drop_gone(task, offset);
	bool may = count_followers(task) < MAX_FOLLOWERS && !follower_find(task, stream, id);
	struct follower *follower = may ? calloc(1, sizeof *follower) : NULL;
	if (!follower)
		return NULL;
	*follower = (struct follower){.next = task->followers, .stream = stream, .id = id, .received = offset};
	follower->place = (struct log_place){.offset = offset, .at = -1};
	follower->counts_until = now_ms() + FOLLOW_MS;
	task->followers = follower;
	follower_count++;
	return follower;
}

void follower_credit(struct follower *follower, uint64_t received, uint32_t window)
{
	/* A late frame says nothing new. */
	if (received < follower->received || received > follower->place.offset)
		return;
	/* It has taken something, also where it lets the older bytes of that be kept for it. */
	if (received + window > follower->received + follower->window) {
		follower->ignored = false;
		follower->counts_until = now_ms() + FOLLOW_MS;
	}
	follower->received = received;
	follower->window = window;
}

/* Nobody says whether it returns: it is waited for. */
void follower_leave(struct task *task, struct follower *follower)
{
	follower->stream = NULL;
	follower->counts_until = now_ms() + FOLLOW_MS;
	if (follower->once)
		remove_follower(task, follower);
}

void followers_leave(const struct stream *stream)
{
	for (size_t i = 0; i < task_count; i++)
		for (struct follower *each = tasks[i]->followers, *next; each; each = next) {
			next = each->next;
			if (each->stream == stream)
				follower_leave(tasks[i], each);
		}
}

static bool does_count(const struct follower *follower, long long now)
{
	return !follower->once && !follower->ignored && follower->counts_until > now;
}

uint64_t followers_need(const struct task *task)
{
	uint64_t needed = task->log.end;
	long long now = now_ms();
	for (const struct follower *each = task->followers; each; each = each->next)
		if (does_count(each, now) && each->received < needed)
			needed = each->received;
	return needed;
}

/* Whether something waits for it: the program, or the end of a log that is not kept any longer. */
static bool is_awaited(const struct task *task, const struct follower *follower, long long now)
{
	if (task->status == TASK_RUNNING)
		return log_would_forget(&task->log, READ_SIZE) && follower->received < log_kept_then(&task->log);
	return task->status > TASK_RUNNING && (!task->keep_log || task->forget_at <= now);
}

/* The minute of a connected one begins where it begins to be waited for; then it does not count until it takes something. */
int followers_expire(struct task *task)
{
	long long now = now_ms();
	int wait = -1;
	for (struct follower *each = task->followers, *next; each; each = next) {
		next = each->next;
		bool awaited = is_awaited(task, each, now);
		if (each->stream && !awaited)
			each->counts_until = now + FOLLOW_MS;
		each->ignored |= each->counts_until <= now;
		if (!each->stream && each->ignored)
			remove_follower(task, each);
		else if (awaited && !each->ignored)
			wait = shorter_wait(wait, (int)(each->counts_until - now));
	}
	return wait;
}

/* One that is gone may not have what was sent to it. */
bool followers_wait(const struct task *task)
{
	for (const struct follower *each = task->followers; each; each = each->next)
		if (!each->ignored && (each->stream ? each->place.offset : each->received) < task->log.end)
			return true;
	return false;
}

static void send_end(struct follower *follower, const struct task *task)
{
	uint8_t data[RECORD_SIZE];
	size_t frame = begin_frame(follower->stream, TASK_ENDED, follower->id);
	put_bytes(follower->stream, data, record_encode(task, data));
	end_frame(follower->stream, frame);
}

struct follower *followers_take(struct task *task)
{
	struct follower *taken = task->followers;
	for (struct follower **place = &taken; *place;) {
		if ((*place)->stream)
			place = &(*place)->next;
		else
			*place = follower_free(*place);
	}
	task->followers = NULL;
	return taken;
}

/* Of a follower who wants the last bytes of each output, those before them are passed over. */
static size_t skip(struct follower *follower, uint8_t output, size_t size)
{
	uint64_t *left = &follower->skip[output - 1];
	size_t skipped = *left < size ? (size_t)*left : size;
	*left -= skipped;
	return skipped;
}

/* What the log has lost, and what it does not want, counts as received: nothing of it is waited for. */
static bool send_piece(struct follower *follower, const struct task *task)
{
	static uint8_t data[PIECE_SIZE];
	struct stream *stream = follower->stream;
	uint64_t before = follower->place.offset, room = follower->received + follower->window;
	if (before >= room)
		return false;
	struct log_piece piece = {.data = data, .limit = room - before < sizeof data ? (size_t)(room - before) : sizeof data, .from = before};
	size_t size = log_read(&task->log, &follower->place, &piece, follower->skip);
	size_t skipped = size ? skip(follower, piece.output, size) : 0;
	follower->received += (size ? piece.from : follower->place.offset) - before + skipped;
	if (size > skipped) {
		size_t frame = begin_frame(stream, TASK_OUTPUT, follower->id);
		put_number(stream, piece.from + skipped, 8);
		put_number(stream, piece.output, 1);
		put_bytes(stream, data + skipped, size - skipped);
		end_frame(stream, frame);
	}
	return size;
}

/* Whether it has all that it asked for, which may be the log up to then. */
static bool is_complete(const struct follower *follower, const struct task *task)
{
	if (follower->once)
		return follower->place.offset >= follower->end;
	return follower->place.offset >= task->log.end && task->status > TASK_RUNNING;
}

static bool serve_follower(struct task *task, struct follower *follower)
{
	bool sent = send_piece(follower, task);
	if (sent || !is_complete(follower, task))
		return sent;
	send_end(follower, task);
	remove_follower(task, follower);
	return true;
}

static bool serve_followers(struct stream *stream, struct task *task, int *pieces)
{
	bool sent = false;
	for (struct follower *each = task->followers, *next; each && unsent(stream) < OUT_FILL && *pieces > 0; each = next) {
		next = each->next;
		if (each->stream != stream)
			continue;
		sent |= serve_follower(task, each);
		--*pieces;
	}
	return sent;
}

/* A piece for each in turn, until the stream has enough. Pieces may be of one byte, and a reader may take them as fast as
 * they are made: others have their turn meanwhile. */
void send_task_output(struct stream *stream, int *pieces)
{
	size_t idle = 0;
	while (follower_count && idle < task_count && unsent(stream) < OUT_FILL && *pieces > 0) {
		struct task *task = tasks[stream->next_task++ % task_count];
		idle = serve_followers(stream, task, pieces) ? 0 : idle + 1;
	}
	stream->has_more = *pieces <= 0;
}
