/* What clients ask for. A request that is no such gets a failure with its id, and the stream goes on. */
#include "hold_requests.h"

#include "guest.h"
#include "hold_changes.h"
#include "hold_commands.h"
#include "hold_connects.h"
#include "hold_frames.h"
#include "hold_input.h"
#include "hold_start.h"
#include "hold_state.h"
#include "hold_task_requests.h"
#include "hold_terminals.h"
#include "hold_views.h"
#include "hold_watch_requests.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#define MAX_SIZE 1000 /* columns and rows */
#define DEFAULT_SCROLLBACK (64 << 10)
#define READ_BACK (24 << 10) /* bytes of output in an answer */

static void greet(struct stream *stream, uint32_t request, struct fields *fields)
{
	uint32_t magic = take_number(fields, 4), version = take_number(fields, 2);
	if (fields->bad || magic != HOLD_MAGIC || version != HOLD_VERSION || fields->left != CLIENT_ID_SIZE) {
		send_failed(stream, request, BAD_VERSION, "version " TEXT_OF(HOLD_VERSION) " is spoken here");
		stream->broken = true;
		return;
	}
	memcpy(stream->client, fields->data, CLIENT_ID_SIZE);
	/* The same client's former connection, of which the end was not noticed yet. */
	for (size_t i = stream_count; i-- > 0;)
		if (streams[i] != stream && streams[i]->greeted && !memcmp(streams[i]->client, stream->client, CLIENT_ID_SIZE))
			streams[i]->broken = true;
	stream->greeted = true;
	size_t frame = begin_frame(stream, WELCOME, request);
	put_number(stream, HOLD_MAGIC, 4);
	put_number(stream, HOLD_VERSION, 2);
	put_number(stream, instance, 8);
	put_number(stream, buffer_size, 4);
	end_frame(stream, frame);
}

static bool is_size(uint32_t cols, uint32_t rows)
{
	return cols >= 1 && rows >= 1 && cols <= MAX_SIZE && rows <= MAX_SIZE;
}

static void start_terminal(struct stream *stream, uint32_t request, const struct start *start, uint32_t window, uint32_t scrollback)
{
	struct terminal *terminal = stream->pending < MAX_PENDING ? terminal_add() : NULL;
	if (!terminal) {
		send_failed(stream, request, TOO_MANY, "the limit of " TEXT_OF(MAX_TERMINALS) " terminals is reached");
		return;
	}
	terminal->scrollback = scrollback;
	terminal->command = keep_words(start->command);
	if (!terminal->command || !terminal_start(terminal, start)) {
		send_failed(stream, request, CANNOT_START, strerror(errno));
		terminal_remove(terminal);
		return;
	}
	terminal->creator = stream;
	terminal->creation = request;
	terminal->creator_window = window;
	stream->pending++;
}

static void create(struct stream *stream, uint32_t request, struct fields *fields)
{
	struct start start = {.cols = (uint16_t)take_number(fields, 2), .rows = (uint16_t)take_number(fields, 2)};
	uint32_t window = take_number(fields, 4);
	start.user = take_text(fields, MAX_PATH_SIZE);
	start.directory = take_text(fields, MAX_PATH_SIZE);
	start.command = take_words(fields);
	start.environment = take_words(fields);
	uint32_t scrollback = fields->left ? take_number(fields, 4) : DEFAULT_SCROLLBACK;
	if (fields->bad || fields->left)
		send_failed(stream, request, BAD_REQUEST, "the request is not complete");
	else if (!is_size(start.cols, start.rows))
		send_failed(stream, request, BAD_SIZE, "columns and rows are 1 to " TEXT_OF(MAX_SIZE));
	else
		start_terminal(stream, request, &start, window, scrollback);
	free(start.user);
	free(start.directory);
	free_words(start.command);
	free_words(start.environment);
}

static void put_entry(struct stream *stream, const struct terminal *terminal)
{
	put_number(stream, terminal->id, 4);
	put_number(stream, terminal->cols, 2);
	put_number(stream, terminal->rows, 2);
	put_number(stream, terminal->output.start, 8);
	put_number(stream, terminal->output.end, 8);
	put_number(stream, terminal->ended_at != 0, 1);
	put_exit(stream, terminal);
}

static void list(struct stream *stream, uint32_t request)
{
	size_t frame = begin_frame(stream, DONE, request);
	put_number(stream, terminal_count, 4);
	for (size_t i = 0; i < terminal_count; i++)
		put_entry(stream, terminals[i]);
	end_frame(stream, frame);
}

static void show(struct stream *stream, const struct terminal *terminal, uint32_t request)
{
	size_t frame = begin_frame(stream, DONE, request);
	put_entry(stream, terminal);
	put_number(stream, (uint64_t)terminal->created, 8);
	put_number(stream, terminal->scrollback, 4);
	put_words(stream, terminal->command);
	end_frame(stream, frame);
}

/* Output that is kept, for who is not attached. */
static void read_back(struct stream *stream, const struct terminal *terminal, uint32_t request, struct fields *fields)
{
	const struct buffer *output = &terminal->output;
	const uint8_t *data = NULL;
	uint64_t offset = take_offset(fields);
	if (fields->bad || offset > output->end) {
		send_failed(stream, request, BAD_OFFSET, "the terminal has not written that many bytes");
		return;
	}
	if (offset < output->start)
		offset = output->start;
	size_t size = buffer_piece(output, offset, READ_BACK, &data), frame = begin_frame(stream, DONE, request);
	put_number(stream, offset, 8);
	put_bytes(stream, data, size);
	end_frame(stream, frame);
}

static void input(struct stream *stream, struct terminal *terminal, uint32_t request, struct fields *fields)
{
	if (terminal->master < 0)
		send_failed(stream, request, ENDED, "the terminal's program has ended");
	else if (stream->pending >= MAX_PENDING)
		send_failed(stream, request, TOO_MANY, "too many requests are not answered yet");
	else if (!input_add(terminal, stream, request, fields->data, fields->left))
		send_failed(stream, request, INPUT_FULL, "the program does not read its input");
}

static void resize(struct stream *stream, struct terminal *terminal, uint32_t request, struct fields *fields)
{
	uint32_t cols = take_number(fields, 2), rows = take_number(fields, 2);
	struct winsize size = {.ws_col = (uint16_t)cols, .ws_row = (uint16_t)rows};
	if (fields->bad || !is_size(cols, rows)) {
		send_failed(stream, request, BAD_SIZE, "columns and rows are 1 to " TEXT_OF(MAX_SIZE));
		return;
	}
	if (terminal->master >= 0)
		ioctl(terminal->master, TIOCSWINSZ, &size); /* the kernel signals the foreground group */
	terminal->cols = (uint16_t)cols;
	terminal->rows = (uint16_t)rows;
	send_done(stream, request);
}

static void attach(struct stream *stream, struct terminal *terminal, uint32_t request, struct fields *fields)
{
	uint64_t offset = take_offset(fields);
	uint32_t window = take_number(fields, 4);
	if (fields->bad || !view_open(terminal, stream, offset, window)) {
		send_failed(stream, request, BAD_OFFSET, "the terminal has not written that many bytes");
		return;
	}
	size_t frame = begin_frame(stream, DONE, request);
	put_number(stream, view_find(terminal, stream)->sent, 8);
	put_number(stream, terminal->cols, 2);
	put_number(stream, terminal->rows, 2);
	end_frame(stream, frame);
}

/* The modes before the oldest byte that is kept. */
static void modes(struct stream *stream, struct terminal *terminal, uint32_t request)
{
	char text[MODES_SIZE];
	size_t size = modes_text(&terminal->output.modes, text), frame = begin_frame(stream, DONE, request);
	put_number(stream, terminal->output.start, 8);
	put_bytes(stream, text, size);
	end_frame(stream, frame);
}

static void credit(struct terminal *terminal, struct stream *stream, struct fields *fields)
{
	struct view *view = view_find(terminal, stream);
	uint64_t received = take_offset(fields);
	uint32_t window = take_number(fields, 4);
	/* A late frame of a view that was opened again says nothing new. */
	if (fields->bad || !view || received < view->received || received > view->sent)
		return;
	view->received = received;
	view->window = window;
}

static void detach(struct stream *stream, struct terminal *terminal, uint32_t request)
{
	struct view *view = view_find(terminal, stream);
	if (view)
		view->used = false;
	send_done(stream, request);
}

static void handle_terminal(struct stream *stream, uint8_t type, uint32_t request, struct fields *fields)
{
	struct terminal *terminal = terminal_find(take_number(fields, 4));
	if (type == CREDIT && terminal)
		credit(terminal, stream, fields);
	else if (fields->bad)
		send_failed(stream, request, BAD_REQUEST, "the request is not complete");
	else if (!terminal && type != CREDIT)
		send_failed(stream, request, NO_TERMINAL, "there is no such terminal");
	else if (type == INPUT)
		input(stream, terminal, request, fields);
	else if (type == RESIZE)
		resize(stream, terminal, request, fields);
	else if (type == ATTACH)
		attach(stream, terminal, request, fields);
	else if (type == DETACH)
		detach(stream, terminal, request);
	else if (type == MODES)
		modes(stream, terminal, request);
	else if (type == TERMINAL_SHOW)
		show(stream, terminal, request);
	else if (type == TERMINAL_READ)
		read_back(stream, terminal, request, fields);
	else if (type == CLOSE) {
		terminal_remove(terminal);
		send_done(stream, request);
	}
}

void handle_frame(struct stream *stream, uint8_t type, uint32_t request, struct fields *fields)
{
	if (!stream->greeted && type != HELLO) {
		send_failed(stream, request, BAD_VERSION, "the first frame is a hello");
		stream->broken = true;
	} else if (type == HELLO) {
		greet(stream, request, fields);
	} else if (type == CREATE) {
		create(stream, request, fields);
	} else if (type == LIST) {
		list(stream, request);
	} else if (type == RUN || type == STOP) {
		handle_command(stream, type, request, fields);
	} else if (type >= TASK_START && type <= TASK_LEAVE) {
		handle_task(stream, type, request, fields);
	} else if (type == CHANGES) {
		handle_changes(stream, request, fields);
	} else if (type >= CONNECT && type <= CONNECT_CLOSE) {
		handle_connect(stream, type, request, fields);
	} else if (type == BYE) {
		stream->leaving = true;
	} else if (type == INPUT || type == RESIZE || type == CLOSE || type == ATTACH || type == DETACH || type == CREDIT || type == MODES ||
	           type == TERMINAL_SHOW || type == TERMINAL_READ) {
		handle_terminal(stream, type, request, fields);
	} else if (type == WATCH || type == UNWATCH || type == WATCH_CREDIT || (type >= KEEP_WATCH && type <= KEPT_END)) {
		handle_watch(stream, type, request, fields);
	} else {
		send_failed(stream, request, BAD_REQUEST, "there is no such request");
	}
}
