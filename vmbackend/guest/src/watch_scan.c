/* The scans that find folders.
 *
 * A folder is watched before it is scanned, so that nothing is missed; what a scan has reported is remembered until the
 * events of that time were read, so that it is not reported twice. Scans end at other file systems and at links.
 *
 * Where the tree, as the events have it, and what is there disagree about a folder, it is reported as removed, and all that
 * is in it again.
 */
#define _GNU_SOURCE
#include "watch_scan.h"

#include "watch_drop.h"
#include "watch_events.h"
#include "watch_found.h"
#include "watch_incomplete.h"
#include "watch_limits.h"
#include "watch_names.h"
#include "watch_open.h"
#include "watch_patterns.h"
#include "watch_tasks.h"
#include "watch_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_FOLDERS 131072 /* of one watch */

static bool is_folder_entry(int fd, const struct dirent *entry)
{
	struct stat info;
	if (entry->d_type != DT_UNKNOWN)
		return entry->d_type == DT_DIR;
	return !fstatat(fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) && S_ISDIR(info.st_mode);
}

static void scan_entry(struct folder *folder, const char *name, bool is_folder, bool report)
{
	char path[MAX_WATCH_PATH];
	if (!tree_path(folder, name, path)) {
		report_long(folder);
		return;
	}
	if (ignored(path, is_folder))
		return;
	if (report && !tree_reported(folder, name)) {
		event_add(ADDED, is_folder, path, "");
		tree_remember(folder, name);
	}
	if (is_folder)
		task_add(folder, name, report, false);
	else
		names_add(folder, name);
}

/* Takes FD over. `complete`: only for the folders in it, of which some may not be watched yet. */
static void scan(int fd, struct folder *folder, bool report, bool complete)
{
	char path[MAX_WATCH_PATH];
	struct dirent *entry;
	DIR *entries = fdopendir(fd);
	while (entries && (entry = readdir(entries))) {
		bool is_folder = is_folder_entry(fd, entry);
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		if (!complete)
			scan_entry(folder, entry->d_name, is_folder, report);
		else if (is_folder && tree_path(folder, entry->d_name, path) && !ignored(path, true))
			task_add(folder, entry->d_name, true, true);
	}
	if (entries)
		closedir(entries);
	else
		close(fd);
}

/* What the tree has at this place, or elsewhere with this watch, is not there. Returns whether PARENT is still in the tree. */
static bool drop_stale(struct folder *stale, const struct folder *parent)
{
	char path[MAX_WATCH_PATH];
	bool below = tree_is_below(parent, stale);
	if (!tree_is_moving(stale) && tree_path(stale, "", path))
		event_add(REMOVED, true, path, "");
	tree_drop(stale);
	if (below)
		tree_doubt();
	return !below;
}

/* A new watch of FD, a folder at that place, which nothing else in the tree has; -1: it is known, or cannot be watched. */
static int claim_watch(int fd, struct folder *parent, const char *name, const char *path, bool *announce)
{
	for (;;) {
		int watch = add_watch(fd);
		if (watch < 0 && errno != ENOENT)
			report_limit(path, errno == ENOSPC ? "too_many_directories" : strerror(errno));
		struct folder *child = tree_child(parent, name), *known = tree_find(watch);
		struct folder *stale = child ? child : known;
		if (watch < 0 || (known && known == child))
			return -1;
		if (!stale && folder_count < MAX_FOLDERS)
			return watch;
		if (!stale) {
			inotify_rm_watch(inotify, watch);
			report_limit(path, "too_many_directories");
			return -1;
		}
		*announce = *announce || child;
		if (!drop_stale(stale, parent))
			return -1;
	}
}

/* No file can be opened at this moment: it is no fault of the folder. */
static bool is_shortage(int error)
{
	return error == EMFILE || error == ENFILE || error == ENOMEM;
}

static void enter(struct folder *parent, const char *name, bool report, bool announce)
{
	char path[MAX_WATCH_PATH];
	int top = open_parent(parent);
	if (top < 0) {
		tree_set_incomplete(parent);
		return;
	}
	if (!tree_path(parent, name, path)) {
		report_long(parent);
		return;
	}
	int fd = open_beneath(top, name);
	if (fd < 0) { /* what else is there now, its own event reports */
		if (is_shortage(errno))
			tree_set_incomplete(parent);
		else if (errno != ENOENT && errno != ENOTDIR && errno != ELOOP && errno != EXDEV)
			report_limit(path, strerror(errno));
		return;
	}
	int watch = claim_watch(fd, parent, name, path, &announce);
	if (watch < 0) {
		close(fd);
		return;
	}
	if (announce)
		event_add(ADDED, true, path, "");
	scan(fd, tree_add(watch, parent, name), report, false);
}

static void enter_all(void)
{
	for (struct task *task; (task = task_first()); task_remove_first())
		if (task->parent)
			enter(task->parent, task->name, task->report, task->announce);
	close_parent();
}

void tree_enter(struct folder *parent, const char *name, bool report)
{
	task_add(parent, name, report, false);
	enter_all();
}

/* A mount covers FOLDER, or one above it: until it is found again, neither it nor what is below is watched. */
static void drop_covered(struct folder *folder)
{
	char path[MAX_WATCH_PATH];
	while (!tree_is_there(folder->parent) && errno == EXDEV)
		folder = folder->parent;
	if (tree_path(folder, "", path))
		event_add(OVERFLOWED, true, path, "mounted_over");
	tree_drop(folder);
}

static void complete(struct folder *folder)
{
	int fd = open_known(folder);
	if (fd >= 0) {
		scan(fd, folder, true, true);
		enter_all();
	} else if (errno == EXDEV) {
		drop_covered(folder);
	} else if (errno == ENAMETOOLONG) {
		report_long(folder);
	} else {
		tree_set_incomplete(folder);
	}
}

bool tree_complete(void)
{
	struct folder *folder;
	if (!attempt_begin_piece())
		return true;
	while ((folder = attempt_next()))
		complete(folder);
	return !attempt_end_piece() || !root_is_gone();
}

bool tree_open(void)
{
	inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	int fd = inotify < 0 ? -1 : open_root();
	int watch = fd < 0 ? -1 : add_watch(fd);
	if (watch < 0)
		return false;
	root_folder = tree_add(watch, NULL, "");
	scan(fd, root_folder, false, false);
	enter_all();
	return true;
}

/* Silently: the reader was notified that events were lost. */
bool tree_rebuild(void)
{
	tree_clear();
	tree_settled();
	close(inotify);
	return tree_open();
}
