/* Input of a terminal that its program has not read yet. Each request is answered once the kernel has all of it. */
#include "hold_input.h"

#include "hold_frames.h"
#include "hold_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_INPUT (1 << 20) /* bytes for a terminal that its program has not read */

static void answer(const struct input *input, bool written)
{
	if (!input->stream)
		return;
	input->stream->pending--;
	if (written)
		send_done(input->stream, input->request);
	else
		send_failed(input->stream, input->request, ENDED, "the terminal's program has ended");
}

bool input_add(struct terminal *terminal, struct stream *stream, uint32_t request, const uint8_t *data, size_t size)
{
	struct input **place = &terminal->inputs;
	struct input *input = terminal->input_size + size > MAX_INPUT ? NULL : malloc(sizeof *input + size);
	if (!input)
		return false;
	*input = (struct input){.stream = stream, .request = request, .size = size};
	memcpy(input->data, data, size);
	while (*place)
		place = &(*place)->next;
	*place = input;
	terminal->input_size += size;
	stream->pending++;
	input_write(terminal);
	return true;
}

void input_write(struct terminal *terminal)
{
	struct input *input;
	while ((input = terminal->inputs)) {
		ssize_t put = write(terminal->master, input->data + input->done, input->size - input->done);
		if (put < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (put < 0) { /* no process has the terminal open */
			input_drop(terminal);
			return;
		}
		input->done += (size_t)put;
		terminal->input_size -= (size_t)put;
		if (input->done < input->size)
			continue;
		terminal->inputs = input->next;
		answer(input, true);
		free(input);
	}
}

void input_drop(struct terminal *terminal)
{
	struct input *input;
	while ((input = terminal->inputs)) {
		terminal->inputs = input->next;
		answer(input, false);
		free(input);
	}
	terminal->input_size = 0;
}

void input_forget(struct terminal *terminal, const struct stream *stream)
{
	for (struct input *input = terminal->inputs; input; input = input->next)
		if (input->stream == stream)
			input->stream = NULL;
}
