#include "watch_tasks.h"

#include "watch_memory.h"
#include "watch_tree.h"

#include <stdlib.h>
#include <string.h>

static struct task *tasks, **tasks_end = &tasks;

void task_add(struct folder *parent, const char *name, bool report, bool announce)
{
	struct task *task = get_memory(sizeof *task + strlen(name) + 1);
	task->parent = parent;
	task->report = report;
	task->announce = announce;
	strcpy(task->name, name);
	parent->tasks++;
	*tasks_end = task;
	tasks_end = &task->next;
}

struct task *task_first(void)
{
	return tasks;
}

void task_remove_first(void)
{
	struct task *task = tasks;
	if (task->parent)
		task->parent->tasks--;
	if (!(tasks = task->next))
		tasks_end = &tasks;
	free(task);
}

void tasks_forget(struct folder *folder)
{
	for (struct task *task = tasks; task && folder->tasks; task = task->next) {
		if (task->parent == folder) {
			task->parent = NULL;
			folder->tasks--;
		}
	}
}
