#include "hold_rings.h"

#include "guest.h"
#include "hold_frames.h"
#include "hold_state.h"

#include <stdlib.h>
#include <string.h>

#ifndef RING_EVENTS         /* tests have fewer */
#define RING_EVENTS 65536
#endif
#define RING_BYTES (8 << 20)
#define ANSWER_SIZE (24 << 10) /* bytes of events in one answer */

struct kept_event {
	size_t size;
	uint8_t data[];
};
struct reader { /* a request that is not answered yet */
	struct stream *stream;
	uint32_t request;
	uint64_t number;
};
struct ring {
	uint64_t start, end;
	size_t bytes;
	struct reader readers[MAX_STREAMS];
	size_t reader_count;
	long long read_at;
	struct kept_event *events[RING_EVENTS]; /* by number */
};

static struct kept_event **place_of(struct ring *ring, uint64_t number)
{
	return &ring->events[number % RING_EVENTS];
}

struct ring *ring_open(void)
{
	struct ring *ring = calloc(1, sizeof *ring); /* pages are taken as events come */
	if (ring)
		ring->read_at = now_ms();
	return ring;
}

static void forget_oldest(struct ring *ring)
{
	struct kept_event **place = place_of(ring, ring->start++);
	ring->bytes -= (*place)->size;
	free(*place);
	*place = NULL;
}

static void forget_all(struct ring *ring)
{
	while (ring->start < ring->end)
		forget_oldest(ring);
}

void ring_close(struct ring *ring)
{
	ring_refuse(ring);
	forget_all(ring);
	free(ring);
}

uint64_t ring_start(const struct ring *ring)
{
	return ring->start;
}

uint64_t ring_end(const struct ring *ring)
{
	return ring->end;
}

/* Without memory all of them are gone, as their readers find by the numbers. */
void ring_add(struct ring *ring, const uint8_t *data, size_t size)
{
	while (ring->start < ring->end && (ring->end - ring->start >= RING_EVENTS || ring->bytes + size > RING_BYTES))
		forget_oldest(ring);
	struct kept_event *event = malloc(sizeof *event + size);
	if (!event) {
		forget_all(ring);
		ring->start = ++ring->end;
		return;
	}
	event->size = size;
	memcpy(event->data, data, size);
	*place_of(ring, ring->end++) = event;
	ring->bytes += size;
}

bool ring_read(struct ring *ring, struct stream *stream, uint32_t request, uint64_t number)
{
	if (number > ring->end || ring->reader_count == MAX_STREAMS || stream->pending >= MAX_PENDING)
		return false;
	ring->readers[ring->reader_count++] = (struct reader){.stream = stream, .request = request, .number = number};
	stream->pending++;
	return true;
}

static void remove_reader(struct ring *ring, size_t place)
{
	ring->readers[place] = ring->readers[--ring->reader_count];
	ring->read_at = now_ms();
}

static void answer(struct ring *ring, const struct reader *reader)
{
	struct stream *stream = reader->stream;
	uint64_t number = reader->number > ring->start ? reader->number : ring->start;
	size_t size = 0, frame = begin_frame(stream, DONE, reader->request);
	stream->pending--;
	put_number(stream, number, 8);
	for (; number < ring->end; number++) {
		const struct kept_event *event = *place_of(ring, number);
		if (size && size + event->size > ANSWER_SIZE)
			break;
		put_bytes(stream, event->data, event->size);
		size += event->size;
	}
	end_frame(stream, frame);
}

bool ring_serve(struct ring *ring)
{
	bool all = true;
	for (size_t i = ring->reader_count; i-- > 0;) {
		struct reader reader = ring->readers[i];
		if (reader.number >= ring->end)
			continue;
		if (unsent(reader.stream) >= OUT_FILL) {
			all = false; /* its connection calls again, as it takes what is unsent */
			continue;
		}
		answer(ring, &reader);
		remove_reader(ring, i);
	}
	return all;
}

void ring_refuse(struct ring *ring)
{
	for (; ring->reader_count; ring->reader_count--) {
		const struct reader *reader = &ring->readers[ring->reader_count - 1];
		reader->stream->pending--;
		send_failed(reader->stream, reader->request, NO_WATCH, "the watch has ended");
	}
}

void ring_leave(struct ring *ring, const struct stream *stream)
{
	for (size_t i = ring->reader_count; i-- > 0;)
		if (ring->readers[i].stream == stream)
			remove_reader(ring, i);
}

long long ring_unread_since(const struct ring *ring)
{
	return ring->reader_count ? -1 : ring->read_at;
}
