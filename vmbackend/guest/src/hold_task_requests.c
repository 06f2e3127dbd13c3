/* What clients ask of tasks. */
#include "hold_task_requests.h"

#include "guest.h"
#include "hold_frames.h"
#include "hold_start.h"
#include "hold_state.h"
#include "hold_task_files.h"
#include "hold_task_followers.h"
#include "hold_task_inputs.h"
#include "hold_task_partings.h"
#include "hold_task_reading.h"
#include "hold_task_records.h"
#include "hold_task_table.h"
#include "hold_tasks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LIST_SIZE (24 << 10) /* bytes of records in one answer */

#define MAX_DEADLINE (UINT64_C(1) << 53) /* milliseconds, beyond all times */

enum { KEEPS_LOG = 1 };                     /* of a start */
enum { WANTS_PRESENT = 1, WANTS_LAST = 2 }; /* of a follower */

static void send_record(struct stream *stream, uint32_t request, const struct task *task)
{
	uint8_t data[RECORD_SIZE];
	size_t frame = begin_frame(stream, DONE, request);
	put_bytes(stream, data, record_encode(task, data));
	end_frame(stream, frame);
}

static struct task_limits take_limits(struct fields *fields)
{
	struct task_limits limits = {0};
	limits.log_bytes = take_offset(fields);
	limits.all_log_bytes = take_offset(fields);
	limits.running = take_number(fields, 2);
	limits.ended = take_number(fields, 2);
	if (limits.running > MAX_RUNNING)
		limits.running = MAX_RUNNING;
	if (limits.ended > MAX_TASKS - MAX_RUNNING)
		limits.ended = MAX_TASKS - MAX_RUNNING;
	return limits;
}

static void follow_start(struct stream *stream, struct task *task, uint32_t id, uint32_t window)
{
	struct follower *follower = follower_add(task, stream, id, 0);
	if (follower)
		follower->window = window;
}

/* The record is there before the program runs: what runs is always found, and what a former process ran is not. */
static void start_task(struct stream *stream, uint32_t request, const struct start *start, struct task *wanted, uint32_t follower, uint32_t window)
{
	uint64_t id = tasks_running() < task_limits.running ? task_id_take() : 0;
	struct task *task = id ? task_make(id) : NULL;
	if (!task) {
		bool full = tasks_running() >= task_limits.running;
		send_failed(stream, request, full ? TOO_MANY : CANNOT_START, full ? "too many tasks run" : strerror(errno));
		return;
	}
	task->keep_log = wanted->keep_log;
	task->ttl = wanted->ttl;
	task->until = wanted->until;
	task->command = keep_words(start->command);
	if (task->command)
		record_save(task);
	if (!task->command || !task_start(task, start)) {
		send_failed(stream, request, CANNOT_START, strerror(errno));
		task_remove(task);
		return;
	}
	if (follower)
		follow_start(stream, task, follower, window);
	send_record(stream, request, task);
}

static void start(struct stream *stream, uint32_t request, struct fields *fields)
{
	struct task wanted = {0};
	struct start start = {0};
	wanted.keep_log = take_number(fields, 1) & KEEPS_LOG;
	struct task_limits limits = take_limits(fields);
	uint64_t deadline = take_offset(fields);
	wanted.until = deadline && deadline <= MAX_DEADLINE ? now_ms() + (long long)deadline : 0;
	wanted.ttl = take_number(fields, 4);
	uint32_t follower = take_number(fields, 4), window = take_number(fields, 4);
	start.user = take_text(fields, MAX_PATH_SIZE);
	start.directory = take_text(fields, MAX_PATH_SIZE);
	start.command = take_words(fields);
	start.environment = take_words(fields);
	if (fields->bad || fields->left || !*start.command)
		send_failed(stream, request, BAD_REQUEST, "the request is not complete");
	else {
		task_limits = limits;
		start_task(stream, request, &start, &wanted, follower, window);
	}
	free(start.user);
	free(start.directory);
	free_words(start.command);
	free_words(start.environment);
}

/* The newest first; those before one, if the request names one. The first field says whether there are more. */
static void list(struct stream *stream, uint32_t request, struct fields *fields)
{
	static uint8_t records[LIST_SIZE], data[RECORD_SIZE];
	uint64_t before = take_offset(fields);
	size_t size = 0, i = task_count;
	if (fields->bad || fields->left) {
		send_failed(stream, request, BAD_REQUEST, "the request is not complete");
		return;
	}
	while (i && before && tasks[i - 1]->id >= before)
		i--;
	for (; i; i--) {
		size_t record = record_encode(tasks[i - 1], data);
		if (size + record + 4 > sizeof records)
			break;
		for (int byte = 3; byte >= 0; byte--)
			records[size++] = (uint8_t)(record >> (8 * byte));
		memcpy(records + size, data, record);
		size += record;
	}
	size_t frame = begin_frame(stream, DONE, request);
	put_number(stream, i != 0, 1);
	put_bytes(stream, records, size);
	end_frame(stream, frame);
}

static void give_input(struct stream *stream, struct task *task, uint32_t request, struct fields *fields)
{
	bool ends = take_number(fields, 1);
	if (fields->bad)
		send_failed(stream, request, BAD_REQUEST, "the request is not complete");
	else if (task->status > TASK_RUNNING || task->input.fd < 0 || task->input.ends)
		send_failed(stream, request, ENDED, "the task or its input has ended");
	else if (!input_give(task, fields->data, fields->left, ends))
		send_failed(stream, request, INPUT_FULL, "the program does not read its input");
	else
		send_done(stream, request);
}

/* The end of what runs is its answer. */
static void remove_task(struct stream *stream, struct task *task, uint32_t request)
{
	if (task->status > TASK_RUNNING) {
		send_record(stream, request, task);
		task_remove(task);
	} else if (stream->pending >= MAX_PENDING || task->remover) {
		send_failed(stream, request, TOO_MANY, "it is being ended");
	} else {
		stream->pending++;
		task->remover = stream;
		task->removal = request;
		task->removed = true;
		task_kill(task);
	}
}

static void pass_over(struct follower *follower, const struct task *task, uint32_t last)
{
	uint64_t sums[2];
	log_sums(&task->log, sums);
	for (int i = 0; i < 2; i++)
		follower->skip[i] = sums[i] > last ? sums[i] - last : 0;
}

/* The answer says where output follows from, and whether the log has less than all that is wanted. */
static void follow(struct stream *stream, struct task *task, uint32_t request, struct fields *fields)
{
	uint32_t id = take_number(fields, 4), window = take_number(fields, 4), flags = take_number(fields, 1), last = take_number(fields, 4);
	uint64_t offset = take_offset(fields);
	if (fields->bad || fields->left) {
		send_failed(stream, request, BAD_REQUEST, "the request is not complete");
		return;
	}
	/* A machine that lost its power may have less than what it had sent. */
	if (offset > task->log.end && !strcmp(task->error, INTERRUPTED))
		offset = task->log.end;
	if (offset > task->log.end) {
		send_failed(stream, request, BAD_OFFSET, "the task has not written that many bytes");
		return;
	}
	struct follower *follower = follower_add(task, stream, id, offset);
	if (!follower) {
		send_failed(stream, request, TOO_MANY, "too many read the task's output");
		return;
	}
	follower->window = window;
	follower->once = flags & WANTS_PRESENT;
	follower->end = task->log.end;
	if (flags & WANTS_LAST)
		pass_over(follower, task, last);
	size_t frame = begin_frame(stream, DONE, request);
	put_number(stream, follower->skip[0] || follower->skip[1] || log_start(&task->log) > offset, 1);
	end_frame(stream, frame);
}

/* Not answered. */
static void steer(struct stream *stream, struct task *task, uint8_t type, struct fields *fields)
{
	struct follower *follower = task ? follower_find(task, stream, take_number(fields, 4)) : NULL;
	if (!follower)
		return;
	if (type == TASK_LEAVE) {
		follower_leave(task, follower);
		return;
	}
	uint64_t received = take_offset(fields);
	uint32_t window = take_number(fields, 4);
	if (!fields->bad)
		follower_credit(follower, received, window);
}

static void handle_one(struct stream *stream, struct task *task, uint8_t type, uint32_t request, struct fields *fields)
{
	bool more = type == TASK_INPUT || type == TASK_FOLLOW;
	if (fields->bad || (fields->left && !more))
		send_failed(stream, request, BAD_REQUEST, "the request is not complete");
	else if (!task)
		send_failed(stream, request, NO_TASK, "there is no such task");
	else if (type == TASK_SHOW)
		send_record(stream, request, task);
	else if (type == TASK_INPUT)
		give_input(stream, task, request, fields);
	else if (type == TASK_REMOVE)
		remove_task(stream, task, request);
	else
		follow(stream, task, request, fields);
}

void handle_task(struct stream *stream, uint8_t type, uint32_t request, struct fields *fields)
{
	if (type == TASK_START) {
		start(stream, request, fields);
	} else if (type == TASK_LIST) {
		list(stream, request, fields);
	} else {
		struct task *task = task_find(take_offset(fields));
		if (type == TASK_CREDIT || type == TASK_LEAVE)
			steer(stream, task, type, fields);
		else
			handle_one(stream, task, type, request, fields);
	}
}

void tasks_leave(const struct stream *stream)
{
	followers_leave(stream);
	for (size_t i = 0; i < task_count; i++)
		if (tasks[i]->remover == stream)
			tasks[i]->remover = NULL;
	partings_leave(stream);
}
