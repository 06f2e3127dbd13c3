/* Tasks: commands that belong to the machine, not to a connection, with a log on the disk (README.md, "Tasks"). */
#ifndef HOLD_TASKS_H
#define HOLD_TASKS_H

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
#define COMMAND_KEPT 4096 /* bytes of its words that a record has */
#define WORDS_KEPT 256
#define RECORD_SIZE (COMMAND_KEPT + 4 * WORDS_KEPT + REASON_SIZE + 128)

struct fields;
struct pollfd;
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
size_t tasks_running(void); /* pending ones, too */

struct task_limits {
	size_t running, ended;
	uint64_t log_bytes, all_log_bytes;
};
extern struct task_limits task_limits; /* as the last start said */

/* hold_task_former.c */
void tasks_open(void); /* finds those of a former process */

/* hold_tasks.c */
int64_t clock_ms(void); /* the time of day */
void task_insert(struct task *task);
struct task *task_find(uint64_t id); /* NULL: there is none */
struct task *task_make(uint64_t id); /* the newest; NULL: no memory */
void task_ended(pid_t pid, int status); /* PID may be no task's */
int tasks_poll(struct pollfd *sources); /* TASK_SOURCES for each that runs; returns how many */
void tasks_serve(const struct pollfd *sources, size_t count);
int tasks_expire(void); /* returns milliseconds until the next call, or -1 */
void task_kill(struct task *task);   /* what runs of it; its end follows */
void task_remove(struct task *task); /* one that has ended, with its files */
void tasks_trim(void);               /* the oldest go, beyond the limits */

/* hold_start.c */
struct start;
bool task_start(struct task *task, const struct start *start); /* false with errno */

/* hold_task_records.c */
size_t record_encode(const struct task *task, uint8_t data[RECORD_SIZE]);
void record_save(const struct task *task);
struct task *record_load(uint64_t id); /* NULL: there is none, or no whole one */
void words_keep(struct task *task, char **words);

/* hold_task_inputs.c */
bool input_give(struct task *task, const uint8_t *data, size_t size, bool ends); /* false: there is no room */
void input_pass(struct task *task);                                              /* what the program takes */
void input_close(struct task *task);

/* hold_task_requests.c */
void handle_task(struct stream *stream, uint8_t type, uint32_t request, struct fields *fields);
void tasks_leave(const struct stream *stream);

#endif
