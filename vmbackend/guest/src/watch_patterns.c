/* The entries that a watch leaves out: those of its patterns, and the platform's own. */
#include "watch_patterns.h"

#include "guest.h"

#include <string.h>

static char **patterns;

void patterns_set(char **given)
{
	patterns = given;
}

bool patterns_anchored(void)
{
	for (char **pattern = patterns; *pattern; pattern++) {
		const char *slash = strchr(*pattern, '/');
		if (slash && slash[1])
			return true;
	}
	return false;
}

bool ignored(const char *path, bool is_folder)
{
	const char *slash = strrchr(path, '/');
	return is_own_name(slash ? slash + 1 : path) || is_ignored(patterns, path, is_folder);
}
