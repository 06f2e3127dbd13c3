/* Removing folders whose content programs of the machine made: of any depth.
 *
 * nftw of musl enters no folder that is deeper than it may hold descriptors, and its paths end at PATH_MAX; a recursion
 * ends with its stack. So one descriptor walks down and, by "..", up again. Nothing else may change the tree at that time.
 */
#define _GNU_SOURCE
#include "guest.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

static bool remove_entry(int fd, const char *name)
{
	return !unlinkat(fd, name, 0) || !unlinkat(fd, name, AT_REMOVEDIR);
}

/* Removes what can be removed at once, and opens the first folder that is left, or returns -1. Repeated while it removes
 * anything: a removal may hide other entries from a reader. */
static int remove_entries(int fd, bool enter)
{
	int copy = openat(fd, ".", FOLDER), below = -1;
	DIR *entries = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *entry;
	for (bool removed = entries; removed && below < 0;) {
		removed = false;
		rewinddir(entries);
		while (below < 0 && (entry = readdir(entries))) {
			if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
				continue;
			if (remove_entry(fd, entry->d_name))
				removed = true;
			else if (enter)
				below = openat(fd, entry->d_name, FOLDER);
		}
	}
	if (entries)
		closedir(entries);
	return below;
}

static bool is_same(int fd, const struct stat *other)
{
	struct stat info;
	return !fstat(fd, &info) && info.st_dev == other->st_dev && info.st_ino == other->st_ino;
}

void empty_folder(const char *path)
{
	struct stat left = {0}; /* the folder that was left last; met again, it cannot be removed */
	bool enter = true;
	int fd = open(path, FOLDER);
	for (unsigned long depth = 0; fd >= 0;) {
		int next = remove_entries(fd, enter);
		if (next >= 0 && is_same(next, &left)) {
			enter = false; /* what can still be removed on the way up is, but no other folder is entered */
			close(next);
			continue;
		}
		if (next >= 0) {
			depth++;
		} else if (depth && !fstat(fd, &left)) {
			depth--;
			next = openat(fd, "..", FOLDER);
		}
		close(fd);
		fd = next;
	}
}
