/* What cannot be watched is reported: the first folder by its path, the next as a loss anywhere, until a folder was removed. */
#include "watch_limits.h"

#include "watch_events.h"
#include "watch_tree.h"

static int reported;

void report_limit(const char *path, const char *reason)
{
	if (reported < 2)
		event_add(OVERFLOWED, true, reported ? "" : path, reason);
	reported++;
}

void report_long(const struct folder *folder)
{
	char path[MAX_WATCH_PATH];
	report_limit(tree_path(folder, "", path) ? path : "", "path_too_long");
}

void limit_lifted(void)
{
	reported = 0;
}
