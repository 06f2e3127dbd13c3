#ifndef HOLD_STREAMS_H
#define HOLD_STREAMS_H

#include <stdbool.h>
#include <stddef.h>

struct pollfd;

void stream_accept(int listener);
bool streams_hurry(void);
int stream_poll(struct pollfd *sources); /* three for each stream; returns how many */
void stream_serve(const struct pollfd *sources, size_t count); /* of the first COUNT streams */

#endif
