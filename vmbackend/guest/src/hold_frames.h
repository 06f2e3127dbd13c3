#ifndef HOLD_FRAMES_H
#define HOLD_FRAMES_H

#include "hold_protocol.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define COMMAND_KEPT 4096 /* bytes of a command's words that lists have */
#define WORDS_KEPT 256

struct stream;

/* The big-endian fields of a received frame; `bad` once one is missing or longer than the frame. */
struct fields {
	uint8_t *data;
	size_t left;
	bool bad;
};

uint32_t take_number(struct fields *fields, int bytes);
uint64_t take_offset(struct fields *fields);
char *take_text(struct fields *fields, size_t limit); /* malloc'ed, without NUL bytes inside; NULL if bad */
char **take_words(struct fields *fields);             /* NULL-terminated, to be freed with free_words; NULL if bad */
void free_words(char **words);
char **keep_words(char **words); /* a copy of the first ones, for lists; NULL: no memory */

void put_number(struct stream *stream, uint64_t value, int bytes);
void put_bytes(struct stream *stream, const void *data, size_t size);
void put_text(struct stream *stream, const char *text);
void put_words(struct stream *stream, char **words);
size_t begin_frame(struct stream *stream, uint8_t type, uint32_t id); /* its place, for end_frame */
void end_frame(struct stream *stream, size_t frame);
size_t unsent(const struct stream *stream);
void send_done(struct stream *stream, uint32_t request);
void send_failed(struct stream *stream, uint32_t request, enum failure code, const char *reason);

#endif
