/* The UUID that firmware gave to the kernel, in a machine that was loaded from a template: there it is the template's, in the
 * kernel's memory. Where the kernel shows it, the machine's own is mounted over it. */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

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

static void cover(const char *path, const char *name, const char *data, size_t size)
{
	char source[64], target[128];
	snprintf(source, sizeof source, KIT "/dmi-%s", name);
	snprintf(target, sizeof target, NEWROOT "%s", path);
	if (!write_file(source, data, size, 0400) || mount(source, target, NULL, MS_BIND, NULL))
		boot_fail("cannot cover %s: %s", path, strerror(errno));
}

static void cover_table(const char *path, const char *name, const uint8_t *old, const uint8_t *new)
{
	size_t size = 0;
	char *table = read_file(path, &size);
	uint8_t *place = table ? memmem(table, size, old, UUID_SIZE) : NULL;
	if (place) {
		memcpy(place, new, UUID_SIZE);
		cover(path, name, table, size);
	}
	free(table);
}

void cover_dmi(const char *uuid)
{
	uint8_t old[UUID_SIZE], new[UUID_SIZE];
	char *shown = read_file(TEXT_PATH, NULL), line[UUID_LETTERS + 2];
	if (!*uuid || !shown) {
		free(shown);
		return;
	}
	if (!parse_uuid(shown, old) || !parse_uuid(uuid, new))
		boot_fail("the machine's UUID cannot be read");
	free(shown);
	int length = snprintf(line, sizeof line, "%.36s\n", uuid);
	cover(TEXT_PATH, "uuid", line, (size_t)length);
	cover_table("/sys/firmware/dmi/tables/DMI", "tables", old, new);
	cover_table("/sys/firmware/dmi/entries/1-0/raw", "entry", old, new);
}
