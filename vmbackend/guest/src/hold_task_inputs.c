/* Input of tasks that their programs have not read yet. A request is answered at once, with all of its bytes taken or none. */
#define _GNU_SOURCE
#include "hold_task_inputs.h"

#include "hold_task_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_INPUT (1 << 20) /* bytes that a program has not read */

void input_close(struct task *task)
{
	struct task_input *input = &task->input;
	if (input->fd >= 0)
		close(input->fd);
	free(input->data);
	*input = (struct task_input){.fd = -1};
}

bool input_give(struct task *task, const uint8_t *data, size_t size, bool ends)
{
	struct task_input *input = &task->input;
	size_t waiting = input->size - input->done;
	if (waiting + size > MAX_INPUT)
		return false;
	uint8_t *space = malloc(waiting + size + 1);
	if (!space)
		return false;
	if (waiting)
		memcpy(space, input->data + input->done, waiting);
	if (size)
		memcpy(space + waiting, data, size);
	free(input->data);
	*input = (struct task_input){.fd = input->fd, .data = space, .size = waiting + size, .ends = ends};
	input_pass(task);
	return true;
}

void input_pass(struct task *task)
{
	struct task_input *input = &task->input;
	while (input->done < input->size) {
		ssize_t put = write(input->fd, input->data + input->done, input->size - input->done);
		if (put < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (put < 0) { /* nothing reads it any more */
			input_close(task);
			return;
		}
		input->done += (size_t)put;
	}
	free(input->data);
	input->data = NULL;
	input->size = input->done = 0;
	if (input->ends)
		input_close(task);
}
