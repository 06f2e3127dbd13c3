/* The log of a task: what it has written to both outputs, in the order in which it was read, by offset.
 *
 * An offset counts bytes of output. The files are those of the offsets at which they begin, each with records: a head (which
 * output, 1 byte; bytes, 8), and the bytes. At most two files have half of the limit each; the older one goes where the newer
 * one is full. What could not be written, because the disk is full, is a hole: a head without bytes.
 */
#ifndef HOLD_TASK_LOG_H
#define HOLD_TASK_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define LOG_FILES 2
#define HEAD 9 /* bytes of a record's head */
#define HOLE 3 /* in place of an output */

struct log_part { /* one file */
	uint64_t start; /* the offset at which it begins */
	off_t size;     /* of the file */
};
struct task_log {
	uint64_t task;
	uint64_t limit; /* bytes of both files */
	struct log_part parts[LOG_FILES]; /* the oldest first */
	int count;
	int fd; /* of the newest, to append; -1 */
	uint64_t end;
	uint64_t hole; /* bytes before the end that could not be written, and have no head yet */
	off_t last_at; /* the newest record, which grows while it is small; -1: none */
	uint64_t last_size;
	uint8_t last_output;
	bool lost; /* bytes are gone */
};

void log_begin(struct task_log *log, uint64_t task, uint64_t limit);
uint64_t log_start(const struct task_log *log);
off_t log_size(const struct task_log *log); /* bytes of its files */
bool log_would_forget(const struct task_log *log, size_t size); /* if that many bytes came */
uint64_t log_kept_then(const struct task_log *log);              /* the oldest offset after that */
void log_add(struct task_log *log, uint8_t output, const uint8_t *data, size_t size);
void log_close(struct task_log *log); /* nothing more is added */
void log_remove_oldest(struct task_log *log);
void log_forget_older(struct task_log *log); /* but for the newest file */
void log_remove(struct task_log *log);       /* all files; the offsets stay */
extern uint64_t log_total;                   /* bytes of all files */

#endif
