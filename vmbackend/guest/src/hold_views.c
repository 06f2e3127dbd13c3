/* Who sees a terminal's output, and how far. While a client is attached, or was until a moment ago, the terminal is not
 * read further than its buffer goes: the program waits for the slowest, and nothing is lost. It waits for STUCK_MS only
 * where another client takes what there is: then the one that stopped gets BEHIND, and has to attach again.
 */
#include "hold_views.h"

#include "guest.h"
#include "hold_frames.h"
#include "hold_state.h"

#include <limits.h>
#include <string.h>
#include <sys/wait.h>

#define STUCK_MS 5000 /* a client that takes nothing while another one does */

struct view *view_find(struct terminal *terminal, const struct stream *stream)
{
	for (size_t i = 0; i < MAX_VIEWS; i++)
		if (terminal->views[i].used && terminal->views[i].stream == stream)
			return &terminal->views[i];
	return NULL;
}

/* A lost client's view ends when it is back, and when another has received what it was kept for. */
static void drop_lost(struct terminal *terminal, const struct stream *stream, uint64_t offset)
{
	for (struct view *view = terminal->views; view < terminal->views + MAX_VIEWS; view++)
		if (view->used && !view->stream &&
		    (view->received >= offset || !memcmp(view->client, stream->client, CLIENT_ID_SIZE)))
			view->used = false;
}

static struct view *free_view(struct terminal *terminal)
{
	struct view *oldest = NULL;
	for (struct view *view = terminal->views; view < terminal->views + MAX_VIEWS; view++) {
		if (!view->used)
			return view;
		if (!view->stream && (!oldest || view->until < oldest->until))
			oldest = view;
	}
	return oldest; /* there is one: fewer streams than views */
}

bool view_open(struct terminal *terminal, struct stream *stream, uint64_t offset, uint32_t window)
{
	if (offset > terminal->output.end)
		return false;
	drop_lost(terminal, stream, offset);
	struct view *view = view_find(terminal, stream);
	if (!view)
		view = free_view(terminal);
	if (offset < terminal->output.start)
		offset = terminal->output.start;
	*view = (struct view){.used = true, .stream = stream, .sent = offset, .received = offset, .window = window};
	view->moved_at = now_ms();
	memcpy(view->client, stream->client, CLIENT_ID_SIZE);
	return true;
}

void views_leave(struct stream *stream)
{
	for (size_t i = 0; i < terminal_count; i++) {
		struct view *view = view_find(terminals[i], stream);
		if (!view)
			continue;
		view->stream = NULL;
		view->used = !stream->leaving && linger_ms > 0;
		view->until = now_ms() + linger_ms;
	}
}

size_t views_room(const struct terminal *terminal)
{
	const struct buffer *buffer = &terminal->output;
	uint64_t needed = buffer->end; /* the oldest byte that a client has not received */
	for (const struct view *view = terminal->views; view < terminal->views + MAX_VIEWS; view++)
		if (view->used && view->received < needed)
			needed = view->received;
	return buffer->size - (size_t)(buffer->end - needed);
}

static bool stops_program(const struct terminal *terminal, const struct view *view)
{
	return !terminal->ended_at && terminal->output.end - view->received >= terminal->output.size;
}

static bool another_takes(const struct terminal *terminal)
{
	for (const struct view *view = terminal->views; view < terminal->views + MAX_VIEWS; view++)
		if (view->used && view->stream && !stops_program(terminal, view))
			return true;
	return false;
}

/* Milliseconds for which it still counts. */
static long long view_rest(const struct terminal *terminal, struct view *view, long long now)
{
	long long rest = view->stream ? LLONG_MAX : view->until - now;
	if (!stops_program(terminal, view))
		view->moved_at = now;
	else if (another_takes(terminal) && view->moved_at + STUCK_MS - now < rest)
		rest = view->moved_at + STUCK_MS - now;
	return rest;
}

static void drop_view(const struct terminal *terminal, struct view *view)
{
	view->used = false;
	if (view->stream)
		end_frame(view->stream, begin_frame(view->stream, BEHIND, terminal->id));
}

int views_expire(struct terminal *terminal)
{
	long long now = now_ms();
	int wait = -1;
	for (struct view *view = terminal->views; view < terminal->views + MAX_VIEWS; view++) {
		long long rest = view->used ? view_rest(terminal, view, now) : LLONG_MAX;
		if (rest <= 0)
			drop_view(terminal, view);
		if (rest != LLONG_MAX)
			wait = shorter_wait(wait, rest > 0 ? (int)rest : 0);
	}
	return wait;
}

static size_t sendable(const struct terminal *terminal, const struct view *view)
{
	uint64_t limit = view->received + view->window;
	uint64_t end = terminal->output.end < limit ? terminal->output.end : limit;
	return end > view->sent ? (size_t)(end - view->sent) : 0;
}

static void send_piece(struct stream *stream, struct terminal *terminal, struct view *view)
{
	const uint8_t *data;
	size_t limit = sendable(terminal, view);
	size_t size = buffer_piece(&terminal->output, view->sent, limit < PIECE ? limit : PIECE, &data);
	size_t frame = begin_frame(stream, OUTPUT, terminal->id);
	put_number(stream, view->sent, 8);
	put_bytes(stream, data, size);
	end_frame(stream, frame);
	view->sent += size;
}

void put_exit(struct stream *stream, const struct terminal *terminal)
{
	bool by_signal = WIFSIGNALED(terminal->status);
	put_number(stream, by_signal, 1);
	put_number(stream, (uint64_t)(by_signal ? WTERMSIG(terminal->status) : WEXITSTATUS(terminal->status)), 4);
}

static void send_exit(struct stream *stream, const struct terminal *terminal, struct view *view)
{
	size_t frame = begin_frame(stream, EXITED, terminal->id);
	put_exit(stream, terminal);
	put_number(stream, terminal->output.end, 8);
	end_frame(stream, frame);
	view->exit_sent = true;
}

/* One piece of each terminal in turn, until the stream has enough. */
void send_output(struct stream *stream)
{
	for (size_t idle = 0; idle < terminal_count && unsent(stream) < OUT_FILL;) {
		struct terminal *terminal = terminals[stream->next++ % terminal_count];
		struct view *view = view_find(terminal, stream);
		idle++;
		if (!view || terminal->starting >= 0)
			continue;
		if (sendable(terminal, view)) {
			send_piece(stream, terminal, view);
			idle = 0;
		} else if (terminal->ended_at && view->sent == terminal->output.end && !view->exit_sent) {
			send_exit(stream, terminal, view);
		}
	}
}
