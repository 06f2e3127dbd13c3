#define _GNU_SOURCE
#include "hold_task_table.h"

#include "guest.h"

#include <stdlib.h>

struct task *tasks[MAX_TASKS];
size_t task_count;
struct task_limits task_limits = {.running = 64, .ended = 1000, .log_bytes = 16 << 20, .all_log_bytes = 256 << 20};

bool task_runs(const struct task *task)
{
	return task->status <= TASK_RUNNING;
}

size_t tasks_running(void)
{
	size_t count = 0;
	for (size_t i = 0; i < task_count; i++)
		count += task_runs(tasks[i]);
	return count;
}

struct task *task_find(uint64_t id)
{
	for (size_t i = task_count; i-- > 0;)
		if (tasks[i]->id == id)
			return tasks[i];
	return NULL;
}

void task_insert(struct task *task)
{
	size_t place = task_count++;
	for (; place && tasks[place - 1]->id > task->id; place--)
		tasks[place] = tasks[place - 1];
	tasks[place] = task;
	task->cgroup = task->starting = task->input.fd = -1;
	for (int i = 0; i < TASK_OUTPUTS; i++)
		task->outputs[i].fd = -1;
}

struct task *task_make(uint64_t id)
{
	struct task *task = task_count < MAX_TASKS ? calloc(1, sizeof *task) : NULL;
	if (!task)
		return NULL;
	task->id = id;
	task->code = NO_CODE;
	task->created = clock_ms();
	log_begin(&task->log, id, task_limits.log_bytes);
	task_insert(task);
	return task;
}
