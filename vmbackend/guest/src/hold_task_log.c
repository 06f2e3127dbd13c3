#define _GNU_SOURCE
#include "hold_task_log.h"

#include "hold_task_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define GROWN (16 << 10) /* a record of fewer bytes takes what comes next of its output */

uint64_t log_total;

static struct log_part *newest(const struct task_log *log)
{
	return (struct log_part *)&log->parts[log->count - 1];
}

static bool is_full(const struct task_log *log, size_t more)
{
	return newest(log)->size + (off_t)more + 2 * HEAD > (off_t)(log->limit / LOG_FILES);
}

void log_begin(struct task_log *log, uint64_t task, uint64_t limit)
{
	*log = (struct task_log){.task = task, .limit = limit, .fd = -1, .last_at = -1};
}

uint64_t log_start(const struct task_log *log)
{
	return log->count ? log->parts[0].start : log->end;
}

off_t log_size(const struct task_log *log)
{
	off_t size = 0;
	for (int i = 0; i < log->count; i++)
		size += log->parts[i].size;
	return size;
}

void log_remove_oldest(struct task_log *log)
{
	log->lost |= log->parts[0].size > 0;
	log_total -= (uint64_t)log->parts[0].size;
	task_file_remove(log->task, &log->parts[0].start);
	log->parts[0] = log->parts[1];
	log->count--;
}

bool log_would_forget(const struct task_log *log, size_t size)
{
	return log->count == LOG_FILES && is_full(log, size);
}

uint64_t log_kept_then(const struct task_log *log)
{
	return log->parts[log->count - 1].start;
}

/* A new file; its start says what a hole is. */
static void rotate(struct task_log *log)
{
	log_close(log);
	int fd = task_file_open(log->task, &log->end, O_WRONLY | O_CREAT | O_TRUNC);
	if (fd < 0)
		return;
	if (log->count == LOG_FILES)
		log_remove_oldest(log);
	log->fd = fd;
	log->hole = 0;
	log->parts[log->count++] = (struct log_part){.start = log->end};
}

static void encode_head(uint8_t head[HEAD], uint8_t output, uint64_t size)
{
	head[0] = output;
	for (int i = 0; i < 8; i++)
		head[1 + i] = (uint8_t)(size >> (8 * (7 - i)));
}

/* At the end of the newest file; nothing of it stays if it cannot be written. */
static bool put(struct task_log *log, const struct iovec *pieces, int count)
{
	struct log_part *part = newest(log);
	ssize_t wanted = 0;
	for (int i = 0; i < count; i++)
		wanted += (ssize_t)pieces[i].iov_len;
	if (pwritev(log->fd, pieces, count, part->size) == wanted) {
		part->size += wanted;
		log_total += (uint64_t)wanted;
		return true;
	}
	(void)!ftruncate(log->fd, part->size);
	return false;
}

/* The head first: of a keeper that is killed before all bytes are there, those that are there end the log. In the other
 * order they would be taken for records. */
static bool grow_last(struct task_log *log, const uint8_t *data, size_t size)
{
	uint8_t head[HEAD];
	encode_head(head, log->last_output, log->last_size + size);
	if (pwrite(log->fd, head, HEAD, log->last_at) != HEAD)
		return false;
	if (put(log, &(struct iovec){(void *)data, size}, 1)) {
		log->last_size += size;
		return true;
	}
	encode_head(head, log->last_output, log->last_size);
	(void)!pwrite(log->fd, head, HEAD, log->last_at); /* cannot fail: nothing is allocated */
	return false;
}

static bool put_record(struct task_log *log, uint8_t output, const uint8_t *data, uint64_t size)
{
	uint8_t head[HEAD];
	off_t at = newest(log)->size;
	encode_head(head, output, size);
	if (!put(log, (struct iovec[]){{head, HEAD}, {(void *)data, data ? size : 0}}, 2))
		return false;
	log->last_at = data ? at : -1;
	log->last_output = output;
	log->last_size = size;
	return true;
}

void log_add(struct task_log *log, uint8_t output, const uint8_t *data, size_t size)
{
	if (log->fd < 0 || is_full(log, size))
		rotate(log);
	bool kept = log->fd >= 0;
	if (kept && log->hole && put_record(log, HOLE, NULL, log->hole))
		log->hole = 0;
	kept = kept && !log->hole;
	if (kept && log->last_at >= 0 && log->last_output == output && log->last_size < GROWN)
		kept = grow_last(log, data, size);
	else
		kept = kept && put_record(log, output, data, size);
	log->end += size;
	if (!kept) {
		log->hole += size;
		log->last_at = -1;
		log->lost = true;
	}
}

void log_close(struct task_log *log)
{
	if (log->fd >= 0)
		close(log->fd);
	log->fd = -1;
	log->last_at = -1;
}

void log_forget_older(struct task_log *log)
{
	while (log->count > 1)
		log_remove_oldest(log);
}

void log_remove(struct task_log *log)
{
	log_close(log);
	while (log->count)
		log_remove_oldest(log);
}
