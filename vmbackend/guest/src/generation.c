/* The file that tells programs of the machine whether its memory was copied since they last looked. */
#define _GNU_SOURCE
#include "guest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANDOM_UUID "/proc/sys/kernel/random/uuid"

bool write_generation(const char *generation)
{
	char line[64];
	int length = snprintf(line, sizeof line, "%.36s\n", generation);
	return write_file(GENERATION_FILE, line, (size_t)length, 0444);
}

void start_generation(void)
{
	char *made = read_file(RANDOM_UUID, NULL);
	if (!made || !write_generation(made))
		boot_fail("cannot write %s", GENERATION_FILE);
	free(made);
}
