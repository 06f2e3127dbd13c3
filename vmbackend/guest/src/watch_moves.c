/* The first halves of renames, until the second comes, or the entry has left the tree.
 *
 * The first half is a removal among the events, which the second turns into a rename, at its place: what comes between
 * the halves concerns other folders, and a later entry of the old name comes after both. */
#include "watch.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_MOVES 256

struct move {
	uint32_t cookie;
	struct folder *folder; /* NULL: no folder, or none that was watched */
	struct event *event;   /* NULL: it was sent */
	unsigned changes;      /* of the tree so far: with others between the halves, paths may mean other entries */
	long long until;
};

/* Two entries that are exchanged (RENAME_EXCHANGE) have the events of a rename and of its reversal. */
struct place {
	int watch; /* of its folder */
	char name[NAME_MAX + 1];
};
static struct place leaving, former_from, former_to;
static uint32_t leaving_cookie;

static struct move moves[MAX_MOVES]; /* the oldest first */
static size_t move_count;

static void remove_move(size_t place)
{
	memmove(moves + place, moves + place + 1, (--move_count - place) * sizeof *moves);
}

static void leave(size_t place)
{
	struct folder *folder = moves[place].folder;
	remove_move(place);
	if (folder)
		tree_drop(folder);
}

/* FOLDER is what was moved, if it is watched. */
void move_begin(uint32_t cookie, struct folder *folder, const char *path, bool is_folder)
{
	if (move_count == MAX_MOVES)
		leave(0);
	if (folder)
		tree_detach(folder);
	event_add(REMOVED, is_folder, path, "");
	moves[move_count++] = (struct move){cookie, folder, event_newest(), tree_changes, now_ms() + SETTLE_MS};
}

bool move_take(uint32_t cookie, struct folder **folder, struct event **event)
{
	for (size_t i = 0; i < move_count; i++) {
		if (moves[i].cookie != cookie)
			continue;
		if (!moves[i].event || moves[i].changes != tree_changes) {
			leave(i);
			return false;
		}
		*folder = moves[i].folder;
		*event = moves[i].event;
		remove_move(i);
		return true;
	}
	return false;
}

/* Something happened inside of what is being moved, at a path that is not known. */
void moves_give_up(void)
{
	while (move_count)
		leave(0);
	tree_doubt();
}

bool moves_wait(void)
{
	return move_count;
}

void moves_sent(const struct event *event)
{
	for (size_t i = 0; i < move_count; i++)
		if (moves[i].event == event)
			moves[i].event = NULL;
}

int moves_expire(void)
{
	while (move_count && moves[0].until <= now_ms())
		leave(0);
	return move_count ? (int)(moves[0].until - now_ms()) + 1 : -1;
}

void moves_forget(const struct folder *folder)
{
	for (size_t i = 0; i < move_count; i++)
		if (moves[i].folder == folder)
			moves[i].folder = NULL;
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
