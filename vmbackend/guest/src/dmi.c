/* The UUID that firmware gave to the kernel, in a machine whose memory was loaded: there it is that of another machine, in the
 * kernel's memory. Where the kernel shows it, the machine's own is shown in its place. */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UUID_SIZE 16
#define UUID_LETTERS 36
#define TEXT_PATH "/sys/class/dmi/id/product_uuid"

/* Of firmware tables, in which the first three fields are little-endian. */
static bool parse_uuid(const char *text, uint8_t *uuid)
{
	static const int order[UUID_SIZE] = {3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15};
	for (int i = 0; i < UUID_SIZE; i++) {
		text += *text == '-';
		if (sscanf(text, "%2hhx", &uuid[order[i]]) != 1)
			return false;
		text += 2;
	}
	return true;
}

static bool show_table(const char *path, const char *name, const uint8_t *old, const uint8_t *new)
{
	size_t size = 0;
	char *table = read_file(path, &size);
	uint8_t *place = table ? memmem(table, size, old, UUID_SIZE) : NULL;
	bool shown = true;
	if (place) {
		memcpy(place, new, UUID_SIZE);
		shown = show_instead(path, name, table, size, 0400);
	}
	free(table);
	return shown;
}

static bool show_uuid(const char *known, const char *uuid)
{
	uint8_t old[UUID_SIZE], new[UUID_SIZE];
	char line[UUID_LETTERS + 2];
	errno = EINVAL;
	if (!parse_uuid(known, old) || !parse_uuid(uuid, new))
		return false;
	int length = snprintf(line, sizeof line, "%.36s\n", uuid);
	return show_instead(TEXT_PATH, "uuid", line, (size_t)length, 0400) &&
	       show_table("/sys/firmware/dmi/tables/DMI", "tables", old, new) &&
	       show_table("/sys/firmware/dmi/entries/1-0/raw", "entry", old, new);
}

/* Here, in the kit's namespace, the kernel's own is never covered. */
bool show_loaded_uuid(void)
{
	char *known = read_file(TEXT_PATH, NULL), *uuid = read_file(UUID_FILE, NULL);
	bool shown = !known || !uuid || show_uuid(known, uuid);
	free(known);
	free(uuid);
	return shown;
}
