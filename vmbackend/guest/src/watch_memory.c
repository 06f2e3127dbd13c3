#include "watch_memory.h"

#include "guest.h"

#include <stdlib.h>
#include <string.h>

void *get_memory(size_t size)
{
	void *memory = calloc(1, size);
	if (!memory)
		die(EXIT_CANNOT_RUN, "out of memory");
	return memory;
}

char *copy_text(const char *text)
{
	return strcpy(get_memory(strlen(text) + 1), text);
}
