/* The events of a kept watch, by number: those that came last, and who waits for more of them. */
#ifndef HOLD_RINGS_H
#define HOLD_RINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ring;
struct stream;

struct ring *ring_open(void); /* NULL: no memory */
void ring_close(struct ring *ring);
uint64_t ring_start(const struct ring *ring); /* the number of the oldest event */
uint64_t ring_end(const struct ring *ring);
void ring_add(struct ring *ring, const uint8_t *event, size_t size);
/* Answered as soon as there is one of that number or later; false: an event that has not come, or too many wait. */
bool ring_read(struct ring *ring, struct stream *stream, uint32_t request, uint64_t number);
bool ring_serve(struct ring *ring);                      /* who waits, as streams have room; false: somebody waits for room */
void ring_refuse(struct ring *ring);                     /* no more comes: who still waits is told */
void ring_leave(struct ring *ring, const struct stream *stream); /* its connection is gone */
long long ring_unread_since(const struct ring *ring);    /* -1: somebody waits */

#endif
