#ifndef HOLD_WATCHES_H
#define HOLD_WATCHES_H

#include <stddef.h>
#include <stdint.h>

#define MAX_WATCHES 8

struct fields;
struct pollfd;
struct stream;

void handle_watch(struct stream *stream, uint8_t type, uint32_t request, struct fields *fields);
void watches_leave(const struct stream *stream); /* its connection is gone */
int watch_poll(struct pollfd *sources);          /* one for each; returns how many */
void watch_serve(const struct pollfd *sources, size_t count);

#endif
