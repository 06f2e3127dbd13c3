/* The file that tells programs of the machine whether its memory was copied since they last looked. */
#define _GNU_SOURCE
#include "guest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANDOM_UUID "/proc/sys/kernel/random/uuid"

void write_generation(const char *generation)
{
	char *made = *generation ? strdup(generation) : read_file(RANDOM_UUID, NULL), *line = NULL;
	int length = made ? asprintf(&line, "%.*s\n", (int)strcspn(made, "\n"), made) : -1;
	if (length < 0 || !write_file(GENERATION_FILE, line, (size_t)length, 0444))
		boot_fail("cannot write %s", GENERATION_FILE);
	free(line);
	free(made);
}
