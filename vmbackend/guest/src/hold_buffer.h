/* The last bytes of a terminal's output, with their offset since its start. */
#ifndef HOLD_BUFFER_H
#define HOLD_BUFFER_H

#include "hold_modes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define READ_SIZE (32 << 10) /* bytes of output in one read */

struct buffer {
	uint8_t *data;
	size_t size;
	uint64_t start, end;
	struct modes modes; /* at START */
};

bool buffer_open(struct buffer *buffer, size_t size);
ssize_t buffer_read(struct buffer *buffer, int fd, size_t limit); /* one read of FD; forgets the oldest where it must */
size_t buffer_piece(const struct buffer *buffer, uint64_t offset, size_t limit, const uint8_t **data);

#endif
