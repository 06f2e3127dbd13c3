/* Tasks of a hold that was killed, with its machine or without: those that ran are over, the others as they were. */
#define _GNU_SOURCE
#include "hold_task_former.h"

#include "guest.h"
#include "hold_task_files.h"
#include "hold_task_reading.h"
#include "hold_task_records.h"
#include "hold_task_table.h"
#include "hold_tasks.h"

#include <string.h>

/* Of a former process: a record, or a file of a log, of which the record may come later. */
static void find_record(uint64_t id, const uint64_t *start)
{
	struct task *task = start ? NULL : record_load(id);
	if (task && task_count < MAX_TASKS)
		task_insert(task);
	else if (!start)
		task_file_remove(id, NULL);
}

static void find_log(uint64_t id, const uint64_t *start)
{
	struct task *task = start ? task_find(id) : NULL;
	if (start && (!task || !log_found(&task->log, *start)))
		task_file_remove(id, start);
}

static void interrupt(struct task *task)
{
	log_recover(&task->log);
	task->status = TASK_FAILED;
	task->code = NO_CODE;
	task->exited = clock_ms();
	strcpy(task->error, INTERRUPTED);
	record_save(task);
}

void tasks_open(void)
{
	if (!task_files_open())
		return;
	task_files_each(find_record);
	task_files_each(find_log);
	for (size_t i = 0; i < task_count; i++) {
		if (tasks[i]->status <= TASK_RUNNING)
			interrupt(tasks[i]);
		tasks[i]->forget_at = now_ms() + 1000LL * tasks[i]->ttl;
	}
	tasks_trim();
}
