/* The life of tasks: their outputs go into their logs, their ends into their records. */
#define _GNU_SOURCE
#include "hold_tasks.h"

#include "guest.h"
#include "hold_frames.h"
#include "hold_state.h"
#include "hold_task_files.h"
#include "hold_task_followers.h"
#include "hold_task_inputs.h"
#include "hold_task_partings.h"
#include "hold_task_records.h"
#include "hold_task_table.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void close_once(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void task_remove(struct task *task)
{
	size_t place = 0;
	parting_begin(task);
	log_remove(&task->log);
	task_file_remove(task->id, NULL);
	while (tasks[place] != task)
		place++;
	memmove(tasks + place, tasks + place + 1, (--task_count - place) * sizeof *tasks);
	free_words(task->command);
	free(task);
}

/* Before the program was waited for; its process group and its number may be another's afterwards. */
void task_kill(struct task *task)
{
	if (task->pid <= 0)
		return;
	kill(task->pid, SIGKILL);
	kill(-task->pid, SIGKILL); /* where the kernel has no cgroups */
	cgroup_kill(task->cgroup);
}

/* The oldest ended ones; then the older halves of the oldest logs that nobody needs. */
void tasks_trim(void)
{
	size_t ended = task_count - tasks_running();
	for (size_t i = 0; i < task_count && (ended > task_limits.ended || log_total > task_limits.all_log_bytes);) {
		if (task_runs(tasks[i]) || (ended <= task_limits.ended && !tasks[i]->log.count)) {
			i++;
			continue;
		}
		task_remove(tasks[i]);
		ended--;
	}
	for (size_t i = 0; i < task_count && log_total > task_limits.all_log_bytes; i++)
		if (tasks[i]->log.count == LOG_FILES && followers_need(tasks[i]) >= log_kept_then(&tasks[i]->log))
			log_forget_older(&tasks[i]->log);
}

/* Once its program was waited for, and its outputs were read. */
static void finish(struct task *task)
{
	bool failed = task->late || *task->error;
	task->status = failed ? TASK_FAILED : TASK_EXITED;
	task->exited = clock_ms();
	task->forget_at = now_ms() + 1000LL * task->ttl;
	input_close(task);
	close_once(&task->starting);
	log_close(&task->log);
	cgroup_remove(task->cgroup);
	task->cgroup = -1;
	record_save(task);
	if (task->removed)
		task_remove(task);
}

static bool is_finished(const struct task *task)
{
	return !task->pid && task->starting < 0 && task->outputs[0].fd < 0 && task->outputs[1].fd < 0;
}

/* Nothing is read that the log could keep only by forgetting what a follower still needs. */
static bool has_room(const struct task *task)
{
	return task->removed || !log_would_forget(&task->log, READ_SIZE) || followers_need(task) >= log_kept_then(&task->log);
}

/* One read. After the program's end what the kernel had then is there for sure, and is all that is read. */
static void read_output(struct task *task, int number)
{
	static uint8_t data[READ_SIZE];
	struct task_output *output = &task->outputs[number];
	size_t limit = !task->pid && output->rest < sizeof data ? output->rest : sizeof data;
	ssize_t got = read(output->fd, data, limit);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got > 0)
		log_add(&task->log, (uint8_t)(number + 1), data, (size_t)got);
	if (!task->pid && got > 0)
		output->rest -= (size_t)got;
	if (got <= 0 || (!task->pid && !output->rest))
		close_once(&output->fd);
}

static void read_start(struct task *task)
{
	size_t size = strlen(task->error), space = REASON_SIZE - 1 - size;
	ssize_t got = space ? read(task->starting, task->error + size, space) : 0;
	if (got < 0 && errno == EAGAIN)
		return;
	if (got > 0) {
		task->error[size + (size_t)got] = 0;
		return;
	}
	close_once(&task->starting);
	task->error[strcspn(task->error, "\n")] = 0;
	if (!strncmp(task->error, "guest: ", 7))
		memmove(task->error, task->error + 7, strlen(task->error + 7) + 1);
	if (!*task->error) {
		task->status = TASK_RUNNING;
		task->started = clock_ms();
	}
}

int tasks_poll(struct pollfd *sources)
{
	struct pollfd *next = sources;
	for (size_t i = 0; i < task_count; i++) {
		const struct task *task = tasks[i];
		if (!task_runs(task))
			continue;
		bool reading = has_room(task);
		for (int number = 0; number < TASK_OUTPUTS; number++)
			*next++ = (struct pollfd){.fd = reading ? task->outputs[number].fd : -1, .events = POLLIN};
		*next++ = (struct pollfd){.fd = task->input.size ? task->input.fd : -1, .events = POLLOUT};
		*next++ = (struct pollfd){.fd = task->starting, .events = POLLIN};
	}
	return (int)(next - sources);
}

static void serve_task(struct task *task, const struct pollfd *sources)
{
	for (int number = 0; number < TASK_OUTPUTS; number++)
		if (sources[number].revents && task->outputs[number].fd >= 0 && has_room(task))
			read_output(task, number);
	if (sources[TASK_OUTPUTS].revents && task->input.fd >= 0)
		input_pass(task);
	if (sources[TASK_OUTPUTS + 1].revents && task->starting >= 0)
		read_start(task);
	if (is_finished(task))
		finish(task);
}

/* The sources are those of the tasks that ran when they were polled: none was added or has ended since. From the last one
 * on, as they may be removed. */
void tasks_serve(const struct pollfd *sources, size_t count)
{
	for (size_t i = task_count, place = count; i-- > 0 && place;) {
		if (i < task_count && task_runs(tasks[i])) {
			place -= TASK_SOURCES;
			serve_task(tasks[i], sources + place);
		}
	}
}

static int expire_running(struct task *task, long long now)
{
	if (!task->until || task->late || !task->pid)
		return -1;
	task->late = task->until <= now;
	if (!task->late)
		return task->until - now > INT_MAX ? INT_MAX : (int)(task->until - now);
	task_kill(task);
	return -1;
}

/* One whose log is not to be kept has it until its readers have it. */
static void drop_log(struct task *task)
{
	if (!task->keep_log && task->log.count && !followers_wait(task))
		log_remove(&task->log);
}

int tasks_expire(void)
{
	long long now = now_ms();
	int wait = -1;
	tasks_trim();
	for (size_t i = task_count; i-- > 0;) {
		struct task *task = tasks[i];
		wait = shorter_wait(wait, followers_expire(task));
		if (task_runs(task)) {
			wait = shorter_wait(wait, expire_running(task, now));
		} else if (task->forget_at <= now && !followers_wait(task)) {
			task_remove(task);
		} else {
			long long rest = task->forget_at - now;
			drop_log(task);
			if (rest > 0) /* else its followers are waited for */
				wait = shorter_wait(wait, rest > INT_MAX ? INT_MAX : (int)rest);
		}
	}
	partings_serve();
	return wait;
}

/* What it has written before its end is in the pipes; their other ends may be open in background processes. */
void task_ended(pid_t pid, int status)
{
	struct task *task = NULL;
	for (size_t i = 0; i < task_count && !task; i++)
		task = task_runs(tasks[i]) && tasks[i]->pid == pid ? tasks[i] : NULL;
	if (!task)
		return;
	task->pid = 0;
	cgroup_outlive(task->cgroup); /* what it has left in the background */
	task->code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
	if (task->late)
		task->code = EXIT_TIMEOUT;
	for (struct task_output *output = task->outputs; output < task->outputs + TASK_OUTPUTS; output++) {
		int size = 0;
		if (output->fd >= 0 && !ioctl(output->fd, FIONREAD, &size) && size > 0)
			output->rest = (size_t)size;
		else
			close_once(&output->fd);
	}
	if (is_finished(task))
		finish(task);
}
