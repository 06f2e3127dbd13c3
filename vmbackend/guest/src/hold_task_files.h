/* The files of tasks, in a folder of the writable disk that the user does not see: `r<task>` is the record of one,
 * `l<task>-<offset>` a file of its log.
 */
#ifndef HOLD_TASK_FILES_H
#define HOLD_TASK_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

bool task_files_open(void); /* false: there is no folder, with errno; no task can be started */
uint64_t task_id_take(void); /* one that no task of this disk had; 0 with errno */
int task_file_open(uint64_t task, const uint64_t *start, int flags); /* START: NULL for the record; -1 with errno */
off_t task_file_size(uint64_t task, const uint64_t *start);          /* -1: there is none */
void task_file_remove(uint64_t task, const uint64_t *start);
bool task_record_write(uint64_t task, const uint8_t *data, size_t size); /* replaces the record; false with errno */
/* Calls it for each file; what is none is removed. START is NULL for records. */
void task_files_each(void (*found)(uint64_t task, const uint64_t *start));

#endif
