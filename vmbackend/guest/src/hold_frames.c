/* Frames of the hold's protocol: length (4 bytes, of what follows), type (1), id (4), fields. All numbers are big-endian. */
#include "hold_frames.h"

#include "hold_state.h"

#include <stdlib.h>
#include <string.h>

static const uint8_t *take(struct fields *fields, size_t size)
{
	if (fields->bad || size > fields->left) {
		fields->bad = true;
		return NULL;
	}
	fields->data += size;
	fields->left -= size;
	return fields->data - size;
}

uint32_t take_number(struct fields *fields, int bytes)
{
	const uint8_t *data = take(fields, (size_t)bytes);
	uint32_t value = 0;
	for (int i = 0; data && i < bytes; i++)
		value = value << 8 | data[i];
	return value;
}

uint64_t take_offset(struct fields *fields)
{
	uint64_t high = take_number(fields, 4);
	return high << 32 | take_number(fields, 4);
}

char *take_text(struct fields *fields, size_t limit)
{
	size_t size = take_number(fields, 4);
	const uint8_t *data = take(fields, size);
	fields->bad = fields->bad || size > limit || memchr(data, 0, size);
	char *text = fields->bad ? NULL : malloc(size + 1);
	fields->bad = !text;
	if (!text)
		return NULL;
	memcpy(text, data, size);
	text[size] = 0;
	return text;
}

char **take_words(struct fields *fields)
{
	size_t count = take_number(fields, 4);
	char **words = fields->bad || count > MAX_WORDS ? NULL : calloc(count + 1, sizeof *words);
	fields->bad = !words;
	for (size_t i = 0; words && i < count; i++) {
		words[i] = take_text(fields, MAX_REQUEST);
		if (words[i])
			continue;
		free_words(words);
		return NULL;
	}
	return words;
}

void free_words(char **words)
{
	for (size_t i = 0; words && words[i]; i++)
		free(words[i]);
	free(words);
}

/* As many as there is room for, and of the last of them the beginning. */
char **keep_words(char **words)
{
	size_t count = 0, room = COMMAND_KEPT;
	char **kept = calloc(WORDS_KEPT + 1, sizeof *kept);
	while (kept && words[count] && count < WORDS_KEPT && (!count || room)) {
		kept[count] = strndup(words[count], room);
		if (!kept[count])
			break;
		room -= strlen(kept[count++]);
	}
	return kept;
}

size_t unsent(const struct stream *stream)
{
	return stream->answer_end - stream->answer_start;
}

void put_bytes(struct stream *stream, const void *data, size_t size)
{
	if (OUT_SIZE - stream->answer_end < size && stream->answer_start) {
		memmove(stream->answer, stream->answer + stream->answer_start, unsent(stream));
		stream->answer_end -= stream->answer_start;
		stream->answer_start = 0;
	}
	if (OUT_SIZE - stream->answer_end < size) {
		stream->broken = true; /* the limits on requests prevent it */
		return;
	}
	memcpy(stream->answer + stream->answer_end, data, size);
	stream->answer_end += size;
}

void put_number(struct stream *stream, uint64_t value, int bytes)
{
	uint8_t data[8];
	for (int i = 0; i < bytes; i++)
		data[i] = (uint8_t)(value >> (8 * (bytes - 1 - i)));
	put_bytes(stream, data, (size_t)bytes);
}

void put_text(struct stream *stream, const char *text)
{
	put_number(stream, strlen(text), 4);
	put_bytes(stream, text, strlen(text));
}

void put_words(struct stream *stream, char **words)
{
	size_t count = 0;
	while (words[count])
		count++;
	put_number(stream, count, 4);
	for (size_t i = 0; i < count; i++)
		put_text(stream, words[i]);
}

/* Returns the place of the frame's length, counted in unsent bytes: the buffer may move. */
size_t begin_frame(struct stream *stream, uint8_t type, uint32_t id)
{
	size_t frame = unsent(stream);
	put_number(stream, 0, 4);
	put_number(stream, type, 1);
	put_number(stream, id, 4);
	return frame;
}

void end_frame(struct stream *stream, size_t frame)
{
	uint8_t *length = stream->answer + stream->answer_start + frame;
	size_t size = unsent(stream) - frame - 4;
	for (int i = 0; !stream->broken && i < 4; i++)
		length[i] = (uint8_t)(size >> (8 * (3 - i)));
}

void send_done(struct stream *stream, uint32_t request)
{
	end_frame(stream, begin_frame(stream, DONE, request));
}

void send_failed(struct stream *stream, uint32_t request, enum failure code, const char *reason)
{
	size_t frame = begin_frame(stream, FAILED, request);
	put_number(stream, code, 2);
	put_bytes(stream, reason, strnlen(reason, REASON_SIZE));
	end_frame(stream, frame);
}
