/* The records of workloads in the configuration of a running machine. */
#define _GNU_SOURCE
#include "workload_records.h"

#include "guest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_of(const char *record, const char *name)
{
	char own[KEY_SIZE], fields[KEY_SIZE];
	snprintf(own, sizeof own, "workload=%s", name);
	snprintf(fields, sizeof fields, "workload:%s:", name);
	return !strcmp(record, own) || !strncmp(record, fields, strlen(fields));
}

/* The records of NAME, or all others; malloc'ed. */
static char *filter_records(const char *all, size_t all_size, const char *name, bool own, size_t *size)
{
	char *found = malloc(all_size + CONFIG_MAX + 1);
	*size = 0;
	if (!found)
		die(EXIT_CANNOT_RUN, "out of memory");
	for (size_t position = 0; position < all_size; position += strlen(all + position) + 1) {
		if (is_of(all + position, name) != own)
			continue;
		memcpy(found + *size, all + position, strlen(all + position) + 1);
		*size += strlen(all + position) + 1;
	}
	return found;
}

void replace_records(const char *name, const char *records, size_t size)
{
	size_t all_size, others_size;
	char *all = read_file(CONFIG_FILE, &all_size);
	if (!all)
		die(EXIT_CANNOT_RUN, "no configuration");
	char *others = filter_records(all, all_size, name, false, &others_size);
	if (others_size + size > CONFIG_MAX)
		die(EXIT_CANNOT_RUN, "the machine's configuration would be larger than %d bytes", CONFIG_MAX);
	memcpy(others + others_size, records, size);
	/* Programs that start at this moment read the old one or the new one. */
	if (!write_file(CONFIG_FILE ".new", others, others_size + size, 0600) || rename(CONFIG_FILE ".new", CONFIG_FILE))
		die(EXIT_CANNOT_RUN, "cannot write the configuration: %s", strerror(errno));
	free(others);
	free(all);
}

bool records_unchanged(const char *name, const char *records, size_t size)
{
	size_t all_size, own_size;
	char *all = read_file(CONFIG_FILE, &all_size);
	char *own = all ? filter_records(all, all_size, name, true, &own_size) : NULL;
	bool same = own && own_size == size && !memcmp(own, records, size);
	free(own);
	free(all);
	return same;
}

void require_records(const char *name, const char *records, size_t size)
{
	if (!size || records[size - 1])
		die(EXIT_CANNOT_RUN, "the records of the workload are cut off");
	for (size_t position = 0; position < size; position += strlen(records + position) + 1)
		if (!is_of(records + position, name))
			die(EXIT_CANNOT_RUN, "a record is not one of the workload");
}
