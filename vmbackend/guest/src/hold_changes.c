#include "hold_changes.h"

#include "hold_frames.h"
#include "hold_state.h"

static uint64_t changes = 1;

void change_note(void)
{
	changes++;
}

/* One request of a stream waits: the last one. */
void handle_changes(struct stream *stream, uint32_t request, struct fields *fields)
{
	uint64_t known = take_offset(fields);
	if (fields->bad || fields->left) {
		send_failed(stream, request, BAD_REQUEST, "the request is not complete");
		return;
	}
	if (stream->awaits_change)
		send_failed(stream, stream->change_request, TOO_MANY, "another request waits for changes");
	stream->awaits_change = true;
	stream->change_request = request;
	stream->known_changes = known;
}

void changes_serve(void)
{
	for (size_t i = 0; i < stream_count; i++) {
		struct stream *stream = streams[i];
		if (!stream->awaits_change || stream->known_changes == changes || unsent(stream) >= OUT_FILL)
			continue;
		stream->awaits_change = false;
		size_t frame = begin_frame(stream, DONE, stream->change_request);
		put_number(stream, changes, 8);
		end_frame(stream, frame);
	}
}
