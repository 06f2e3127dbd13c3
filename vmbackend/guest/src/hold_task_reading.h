#ifndef HOLD_TASK_READING_H
#define HOLD_TASK_READING_H

#include "hold_task_log.h"

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

/* The next bytes of one output; 0: there are no more. Whole records that SKIP has room for are passed over, and taken off it. */
size_t log_read(const struct task_log *log, struct log_place *place, struct log_piece *piece, uint64_t skip[2]);
void log_sums(const struct task_log *log, uint64_t sums[2]);  /* bytes of each output that are kept */
bool log_found(struct task_log *log, uint64_t start);         /* a file of a former process; false: one too many */
void log_recover(struct task_log *log); /* the end of a log whose keeper died; its last record may be incomplete */

#endif
