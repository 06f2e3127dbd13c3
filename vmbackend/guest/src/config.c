#include "guest.h"

#include <stdlib.h>
#include <string.h>

static char *records;
static size_t records_size;

/* What was loaded before stays in memory, as the environment may point to it; and in force, if this fails. */
bool config_load(const char *path)
{
	size_t size = 0;
	char *found = read_file(path, &size);
	if (!found || !size || found[size - 1]) {
		free(found);
		return false;
	}
	records = found;
	records_size = size;
	return true;
}

const char *config_next(const char *key, size_t *position)
{
	size_t length = strlen(key);
	while (*position < records_size) {
		const char *record = records + *position;
		*position += strlen(record) + 1;
		if (!strncmp(record, key, length) && record[length] == '=')
			return record + length + 1;
	}
	return NULL;
}

const char *config_get(const char *key)
{
	size_t position = 0;
	const char *value = config_next(key, &position);
	return value ? value : "";
}

size_t config_list(const char *key, char ***values)
{
	size_t position = 0, count = 0;
	while (config_next(key, &position))
		count++;
	*values = calloc(count + 1, sizeof **values);
	if (!*values)
		die(EXIT_CANNOT_RUN, "out of memory");
	position = 0;
	for (size_t i = 0; i < count; i++)
		(*values)[i] = (char *)config_next(key, &position);
	return count;
}
