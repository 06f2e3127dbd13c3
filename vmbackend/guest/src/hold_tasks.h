#ifndef HOLD_TASKS_H
#define HOLD_TASKS_H

#include <stddef.h>
#include <sys/types.h>

struct pollfd;
struct task;

void task_ended(pid_t pid, int status);       /* PID may be no task's */
int tasks_poll(struct pollfd *sources);       /* TASK_SOURCES for each that runs; returns how many */
void tasks_serve(const struct pollfd *sources, size_t count);
int tasks_expire(void);              /* returns milliseconds until the next call, or -1 */
void task_kill(struct task *task);   /* what runs of it; its end follows */
void task_remove(struct task *task); /* one that has ended, with its files */
void tasks_trim(void);               /* the oldest go, beyond the limits */

#endif
