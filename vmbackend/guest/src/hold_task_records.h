#ifndef HOLD_TASK_RECORDS_H
#define HOLD_TASK_RECORDS_H

#include "hold_frames.h"

#include <stddef.h>
#include <stdint.h>

#define RECORD_SIZE (COMMAND_KEPT + 4 * WORDS_KEPT + REASON_SIZE + 128)

struct task;

size_t record_encode(const struct task *task, uint8_t data[RECORD_SIZE]);
void record_save(const struct task *task);
struct task *record_load(uint64_t id); /* NULL: there is none, or no whole one */

#endif
