/* The watched folders, by watch and by name. */
#define _GNU_SOURCE
#include "watch_tree.h"

#include "watch_memory.h"

#include <stdlib.h>
#include <string.h>

#define BUCKETS 16384
static struct folder *by_watch[BUCKETS], *by_name[BUCKETS];
struct folder *root_folder;
size_t folder_count;
unsigned tree_changes;

/* A folder's watch is never used again. */
static unsigned place_of(const struct folder *folder, const char *name)
{
	unsigned hash = 2166136261u ^ (unsigned)folder->watch * 31u;
	for (; *name; name++)
		hash = (hash ^ (uint8_t)*name) * 16777619u;
	return hash % BUCKETS;
}

struct folder *tree_find(int watch)
{
	struct folder *folder = by_watch[(unsigned)watch % BUCKETS];
	while (folder && folder->watch != watch)
		folder = folder->next_by_watch;
	return folder;
}

struct folder *tree_child(const struct folder *parent, const char *name)
{
	struct folder *folder = by_name[place_of(parent, name)];
	while (folder && (folder->parent != parent || strcmp(folder->name, name)))
		folder = folder->next_by_name;
	return folder;
}

void tree_visit(void (*visit)(struct folder *folder, void *about), void *about)
{
	for (size_t i = 0; i < BUCKETS; i++)
		for (struct folder *folder = by_watch[i], *next; folder; folder = next) {
			next = folder->next_by_watch;
			visit(folder, about);
		}
}

static bool prepend(char *path, size_t *start, const char *name)
{
	size_t size = strlen(name) + (*start < MAX_WATCH_PATH - 1);
	if (size > *start)
		return false;
	if (*start < MAX_WATCH_PATH - 1)
		path[*start - 1] = '/';
	*start -= size;
	memcpy(path + *start, name, strlen(name));
	return true;
}

bool tree_path(const struct folder *folder, const char *name, char *path)
{
	size_t start = MAX_WATCH_PATH - 1;
	path[start] = 0;
	if (*name && !prepend(path, &start, name))
		return false;
	for (; folder->parent; folder = folder->parent)
		if (!prepend(path, &start, folder->name))
			return false;
	memmove(path, path + start, MAX_WATCH_PATH - start);
	return true;
}

static void link_name(struct folder *folder)
{
	struct folder **place = &by_name[place_of(folder->parent, folder->name)];
	folder->next_by_name = *place;
	*place = folder;
	folder->moving = false;
}

void tree_detach(struct folder *folder)
{
	struct folder **place = &by_name[place_of(folder->parent, folder->name)];
	while (*place && *place != folder)
		place = &(*place)->next_by_name;
	if (*place)
		*place = folder->next_by_name;
	folder->moving = true;
	tree_changes++;
}

/* The caller notifies those that have kept something of it. */
void tree_remove(struct folder *folder)
{
	struct folder **place = &by_watch[(unsigned)folder->watch % BUCKETS];
	while (*place && *place != folder)
		place = &(*place)->next_by_watch;
	if (*place)
		*place = folder->next_by_watch;
	if (folder->parent) {
		if (!folder->moving)
			tree_detach(folder);
		folder->parent->children--;
	}
	folder_count--;
	free(folder->name);
	free(folder);
}

bool tree_is_below(const struct folder *folder, const struct folder *top)
{
	while (folder && folder != top)
		folder = folder->parent;
	return folder;
}

/* PARENT has no folder of that name, and is not below FOLDER. */
void tree_move(struct folder *folder, struct folder *parent, const char *name)
{
	char *copy = copy_text(name);
	if (!folder->moving)
		tree_detach(folder);
	folder->parent->children--;
	parent->children++;
	folder->parent = parent;
	free(folder->name);
	folder->name = copy;
	link_name(folder);
}

struct folder *tree_add(int watch, struct folder *parent, const char *name)
{
	struct folder *folder = get_memory(sizeof *folder), **place = &by_watch[(unsigned)watch % BUCKETS];
	*folder = (struct folder){.watch = watch, .parent = parent, .name = copy_text(name), .next_by_watch = *place};
	*place = folder;
	folder_count++;
	if (!parent)
		return folder;
	parent->children++;
	link_name(folder);
	return folder;
}

bool tree_is_moving(const struct folder *folder)
{
	while (folder && !folder->moving)
		folder = folder->parent;
	return folder;
}
