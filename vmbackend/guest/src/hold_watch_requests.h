#ifndef HOLD_WATCH_REQUESTS_H
#define HOLD_WATCH_REQUESTS_H

#include <stdint.h>

struct fields;
struct stream;

void handle_watch(struct stream *stream, uint8_t type, uint32_t request, struct fields *fields);

#endif
