#ifndef HOLD_START_H
#define HOLD_START_H

#include <stdbool.h>
#include <stdint.h>

struct task;
struct terminal;

struct start { /* what CREATE and RUN ask for */
	uint16_t cols, rows;
	char *user, *directory;
	char **command, **environment;
};

bool task_start(struct task *task, const struct start *start);             /* false with errno */
bool terminal_start(struct terminal *terminal, const struct start *start); /* false with errno */
void command_exec(const struct start *start, int out, int err) __attribute__((noreturn)); /* in the command's process */

#endif
