/* Records of tasks: what a list shows of them, in the same form as on the disk. */
#define _GNU_SOURCE
#include "hold_task_records.h"

#include "guest.h"
#include "hold_frames.h"
#include "hold_task_files.h"
#include "hold_task_table.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { IS_LATE = 1, HAS_LOST = 2, KEEPS_LOG = 4 };

struct writer {
	uint8_t *data;
	size_t size;
};

static void add_number(struct writer *to, uint64_t value, int bytes)
{
	for (int i = 0; i < bytes; i++)
		to->data[to->size++] = (uint8_t)(value >> (8 * (bytes - 1 - i)));
}

static void add_text(struct writer *to, const char *text)
{
	size_t size = strlen(text);
	add_number(to, size, 4);
	memcpy(to->data + to->size, text, size);
	to->size += size;
}

size_t record_encode(const struct task *task, uint8_t data[RECORD_SIZE])
{
	struct writer to = {.data = data};
	size_t words = 0;
	add_number(&to, task->id, 8);
	add_number(&to, task->status, 1);
	add_number(&to, (uint32_t)task->code, 4);
	add_number(&to, (uint32_t)task->shown_pid, 4);
	add_number(&to, (task->late ? IS_LATE : 0) | (task->log.lost ? HAS_LOST : 0) | (task->keep_log ? KEEPS_LOG : 0), 1);
	add_number(&to, (uint64_t)task->created, 8);
	add_number(&to, (uint64_t)task->started, 8);
	add_number(&to, (uint64_t)task->exited, 8);
	add_number(&to, task->ttl, 4);
	add_number(&to, log_start(&task->log), 8);
	add_number(&to, task->log.end, 8);
	add_text(&to, task->error);
	while (task->command[words])
		words++;
	add_number(&to, words, 4);
	for (size_t i = 0; i < words; i++)
		add_text(&to, task->command[i]);
	return to.size;
}

/* If the disk is full the former record stays; memory has the new one. */
void record_save(const struct task *task)
{
	uint8_t data[RECORD_SIZE];
	task_record_write(task->id, data, record_encode(task, data));
}

static void read_record(struct task *task, struct fields *fields)
{
	task->id = take_offset(fields);
	task->status = take_number(fields, 1);
	task->code = (int)take_number(fields, 4);
	task->shown_pid = (pid_t)take_number(fields, 4);
	uint32_t flags = take_number(fields, 1);
	task->created = (int64_t)take_offset(fields);
	task->started = (int64_t)take_offset(fields);
	task->exited = (int64_t)take_offset(fields);
	task->ttl = take_number(fields, 4);
	take_offset(fields); /* the log's start: its files say it */
	uint64_t end = take_offset(fields);
	char *error = take_text(fields, REASON_SIZE - 1);
	task->command = take_words(fields);
	log_begin(&task->log, task->id, 0);
	task->log.end = end;
	task->log.lost = flags & HAS_LOST;
	task->late = flags & IS_LATE;
	task->keep_log = flags & KEEPS_LOG;
	strcpy(task->error, error ? error : "");
	free(error);
}

struct task *record_load(uint64_t id)
{
	static uint8_t data[RECORD_SIZE];
	int fd = task_file_open(id, NULL, O_RDONLY);
	ssize_t size = fd < 0 ? -1 : read(fd, data, sizeof data);
	if (fd >= 0)
		close(fd);
	struct fields fields = {.data = data, .left = size < 0 ? 0 : (size_t)size};
	struct task *task = calloc(1, sizeof *task);
	if (task)
		read_record(task, &fields);
	if (task && !fields.bad && !fields.left && task->id == id && task->status <= TASK_FAILED)
		return task;
	if (task)
		free_words(task->command);
	free(task);
	return NULL;
}
