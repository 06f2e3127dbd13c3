/* The first halves of renames, until the second comes, or the entry has left the tree.
 *
 * The first half is a removal among the events, which the second turns into a rename, at its place: what comes between
 * the halves concerns other folders, and a later entry of the old name comes after both. */
#include "watch_moves.h"

#include "guest.h"
#include "watch_drop.h"
#include "watch_events.h"
#include "watch_halves.h"
#include "watch_incomplete.h"
#include "watch_names.h"
#include "watch_open.h"
#include "watch_patterns.h"
#include "watch_tree.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Two entries that are exchanged (RENAME_EXCHANGE) have the events of a rename and of its reversal. */
struct place {
	int watch; /* of its folder */
	char name[NAME_MAX + 1];
};
static struct place leaving, former_from, former_to;
static uint32_t leaving_cookie;

static void leave(const struct half *half)
{
	struct folder *folder = half_take(half).folder;
	if (folder)
		tree_drop(folder);
}

/* FOLDER is what was moved, if it is watched. */
void move_begin(uint32_t cookie, struct folder *folder, const char *path, bool is_folder)
{
	if (halves_are_full())
		leave(half_first());
	if (folder)
		tree_detach(folder);
	event_add(REMOVED, is_folder, path, "");
	half_add((struct half){cookie, folder, event_newest(), tree_changes, now_ms() + SETTLE_MS});
}

bool move_take(uint32_t cookie, struct folder **folder, struct event **event)
{
	const struct half *half = half_find(cookie);
	if (!half)
		return false;
	if (!half->event || half->changes != tree_changes) {
		leave(half);
		return false;
	}
	*folder = half->folder;
	*event = half->event;
	half_take(half);
	return true;
}

/* Something happened inside of what is being moved, at a path that is not known. */
void moves_give_up(void)
{
	while (half_first())
		leave(half_first());
	tree_doubt();
}

bool moves_wait(void)
{
	return half_first();
}

int moves_expire(void)
{
	const struct half *half;
	while ((half = half_first()) && half->until <= now_ms())
		leave(half);
	return half ? (int)(half->until - now_ms()) + 1 : -1;
}

static struct place make_place(const struct folder *folder, const char *name)
{
	struct place place = {.watch = folder->watch};
	snprintf(place.name, sizeof place.name, "%s", name);
	return place;
}

static bool is_place(const struct place *one, const struct place *other)
{
	return one->watch == other->watch && !strcmp(one->name, other->name);
}

void move_left(const struct folder *folder, const char *name, uint32_t cookie)
{
	leaving = make_place(folder, name);
	leaving_cookie = cookie;
}

void move_arrived(const struct folder *folder, const char *name, uint32_t cookie)
{
	char path[MAX_WATCH_PATH];
	struct stat info;
	struct place to = make_place(folder, name);
	if (cookie != leaving_cookie)
		return;
	struct folder *from = tree_find(leaving.watch);
	if (from && is_place(&leaving, &former_to) && is_place(&to, &former_from)) {
		int fd = open_known(from);
		if (fd >= 0 && !fstatat(fd, leaving.name, &info, AT_SYMLINK_NOFOLLOW) && !S_ISDIR(info.st_mode) &&
		    tree_path(from, leaving.name, path) && !ignored(path, false)) {
			names_add(from, leaving.name);
			event_add(ADDED, false, path, "");
		}
		if (fd >= 0)
			close(fd);
	}
	former_from = leaving;
	former_to = to;
}
