/* The tasks of this machine: commands that belong to it, not to a connection (README.md, "Tasks"). */
#ifndef HOLD_TASK_TABLE_H
#define HOLD_TASK_TABLE_H

#include "hold_protocol.h"
#include "hold_task_log.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define NO_CODE (-1)
#define INTERRUPTED "interrupted" /* the error of a task whose keeper died */
#define TASK_OUTPUTS 2
#define TASK_SOURCES 4    /* outputs, input, report of the start */
#define MAX_RUNNING 96    /* whatever the platform says; each has six descriptors */
#define MAX_TASKS 4096

struct follower;
struct stream;

enum task_status { TASK_PENDING, TASK_RUNNING, TASK_EXITED, TASK_FAILED };

struct task_output {
	int fd;      /* -1: it was read to its end */
	size_t rest; /* after the program's end: bytes that the kernel had then */
};
struct task_input {
	int fd; /* -1: it is closed */
	uint8_t *data;
	size_t size, done;
	bool ends; /* after them */
};
struct task {
	uint64_t id;
	enum task_status status;
	int code; /* or NO_CODE */
	pid_t pid, shown_pid; /* PID 0: it was waited for */
	bool late, keep_log;
	int64_t created, started, exited; /* of the clock, in milliseconds; 0: not yet */
	uint32_t ttl;                     /* seconds after its end */
	char error[REASON_SIZE];
	char **command;
	int cgroup, starting; /* `starting`: as of a terminal */
	struct task_output outputs[TASK_OUTPUTS];
	struct task_input input;
	long long until, forget_at; /* monotonic; `until` 0: no deadline */
	struct task_log log;
	struct follower *followers;
	struct stream *remover; /* who waits for its end, with what request */
	uint32_t removal;
	bool removed; /* it is, once it has ended */
};

extern struct task *tasks[MAX_TASKS]; /* by id */
extern size_t task_count;

struct task_limits {
	size_t running, ended;
	uint64_t log_bytes, all_log_bytes;
};
extern struct task_limits task_limits; /* as the last start said */

bool task_runs(const struct task *task); /* or is about to */
size_t tasks_running(void);
struct task *task_find(uint64_t id); /* NULL: there is none */
void task_insert(struct task *task);
struct task *task_make(uint64_t id); /* the newest; NULL: no memory */

#endif
