/* RECORDS are all of one workload: NUL-terminated, SIZE bytes. */
#ifndef WORKLOAD_RECORDS_H
#define WORKLOAD_RECORDS_H

#include <stdbool.h>
#include <stddef.h>

void require_records(const char *name, const char *records, size_t size); /* ends the process where one is not its own */
bool records_unchanged(const char *name, const char *records, size_t size);
void replace_records(const char *name, const char *records, size_t size); /* exits on failure */

#endif
