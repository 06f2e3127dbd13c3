#ifndef HOLD_TASK_REQUESTS_H
#define HOLD_TASK_REQUESTS_H

#include <stdint.h>

struct fields;
struct stream;

void handle_task(struct stream *stream, uint8_t type, uint32_t request, struct fields *fields);
void tasks_leave(const struct stream *stream);

#endif
