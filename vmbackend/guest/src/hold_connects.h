#ifndef HOLD_CONNECTS_H
#define HOLD_CONNECTS_H

#include <stddef.h>
#include <stdint.h>

#define MAX_CONNECTS 256 /* of all streams together */

struct fields;
struct pollfd;
struct stream;

void handle_connect(struct stream *stream, uint8_t type, uint32_t request, struct fields *fields);
void connects_leave(const struct stream *stream); /* its connections end with it */
int connects_poll(struct pollfd *sources);        /* one for each; returns how many */
void connects_serve(const struct pollfd *sources, size_t count);

#endif
