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
struct log_place { /* of a reader */
	uint64_t offset;
	uint64_t part;  /* the file, by its start */
	off_t at;       /* the record's head in it; -1: it is looked for */
	uint64_t begin; /* the offset of the record */
};

struct log_piece { /* what is read */
	uint8_t *data;
	size_t limit;   /* of its bytes */
	uint8_t output; /* of these */
	uint64_t from;  /* the offset of the first */
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
/* The next bytes of one output; 0: there are no more. Whole records that SKIP has room for are passed over, and taken off it. */
size_t log_read(const struct task_log *log, struct log_place *place, struct log_piece *piece, uint64_t skip[2]);
void log_sums(const struct task_log *log, uint64_t sums[2]); /* bytes of each output that are kept */
bool log_found(struct task_log *log, uint64_t start);         /* a file of a former process; false: one too many */
void log_recover(struct task_log *log); /* the end of a log whose keeper died; its last record may be incomplete */
extern uint64_t log_total;             /* bytes of all files */

#endif
