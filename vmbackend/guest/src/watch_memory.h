#ifndef WATCH_MEMORY_H
#define WATCH_MEMORY_H

#include <stddef.h>

void *get_memory(size_t size);     /* zeros; ends the process where there is none */
char *copy_text(const char *text); /* as get_memory */

#endif
