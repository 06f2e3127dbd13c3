#ifndef HOLD_TASK_INPUTS_H
#define HOLD_TASK_INPUTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct task;

bool input_give(struct task *task, const uint8_t *data, size_t size, bool ends); /* false: there is no room */
void input_pass(struct task *task);                                              /* what the program takes */
void input_close(struct task *task);

#endif
