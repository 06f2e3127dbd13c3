#ifndef HOLD_VIEWS_H
#define HOLD_VIEWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stream;
struct terminal;

void put_exit(struct stream *stream, const struct terminal *terminal); /* how it ended: kind (0: code, 1: signal), number */
bool view_open(struct terminal *terminal, struct stream *stream, uint64_t offset, uint32_t window);
struct view *view_find(struct terminal *terminal, const struct stream *stream);
void views_leave(struct stream *stream);            /* its connection is gone */
size_t views_room(const struct terminal *terminal); /* bytes that may be read without loss for a client */
int views_expire(struct terminal *terminal);        /* returns milliseconds until the next call, or -1 */
void send_output(struct stream *stream);

#endif
