#include "hold_buffer.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The pages of the memory are taken as output comes. */
bool buffer_open(struct buffer *buffer, size_t size)
{
	*buffer = (struct buffer){.data = malloc(size), .size = size};
	return buffer->data;
}

/* The oldest bytes, to make room for that many more; the modes that they set are kept. */
static void forget_oldest(struct buffer *buffer, size_t more)
{
	while (buffer->end + more - buffer->start > buffer->size) {
		const uint8_t *data;
		size_t excess = (size_t)(buffer->end + more - buffer->start - buffer->size);
		size_t piece = buffer_piece(buffer, buffer->start, excess, &data);
		modes_follow(&buffer->modes, data, piece);
		buffer->start += piece;
	}
}

ssize_t buffer_read(struct buffer *buffer, int fd, size_t limit)
{
	static uint8_t block[READ_SIZE];
	size_t most = limit < sizeof block ? limit : sizeof block;
	ssize_t got = read(fd, block, most < buffer->size ? most : buffer->size);
	if (got <= 0)
		return got;
	forget_oldest(buffer, (size_t)got);
	size_t place = buffer->end % buffer->size, space = buffer->size - place, size = (size_t)got;
	memcpy(buffer->data + place, block, size < space ? size : space);
	if (size > space)
		memcpy(buffer->data, block + space, size - space);
	buffer->end += size;
	return got;
}

size_t buffer_piece(const struct buffer *buffer, uint64_t offset, size_t limit, const uint8_t **data)
{
	size_t place = offset % buffer->size, size = buffer->size - place;
	*data = buffer->data + place;
	if (size > buffer->end - offset)
		size = (size_t)(buffer->end - offset);
	return size < limit ? size : limit;
}
