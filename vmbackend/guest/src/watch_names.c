/* The names of what is in a folder beside folders, by their hashes: inotify does not say whether a rename has replaced
 * something. Where two names have one hash, something new is reported as changed. */
#include "watch_names.h"

#include "watch_memory.h"
#include "watch_tree.h"

#include <stdlib.h>
#include <string.h>

#define MAX_NAMES (4 << 20) /* of a watch, 4 bytes and room for as many again; of others nothing is known */

static size_t total;

/* Never 0, which is an empty place. */
static uint32_t hash_of(const char *name)
{
	uint32_t hash = 2166136261u;
	for (; *name; name++)
		hash = (hash ^ (uint8_t)*name) * 16777619u;
	return hash ? hash : 1;
}

static size_t place_of(const struct folder *folder, uint32_t hash)
{
	size_t place = hash & (folder->name_room - 1);
	while (folder->names[place] && folder->names[place] != hash)
		place = (place + 1) & (folder->name_room - 1);
	return place;
}

static void make_room(struct folder *folder)
{
	uint32_t *former = folder->names;
	size_t room = folder->name_room;
	if (folder->name_count * 4 < room * 3)
		return;
	folder->name_room = room ? room * 2 : 8;
	folder->names = get_memory(folder->name_room * sizeof *folder->names);
	for (size_t i = 0; i < room; i++)
		if (former[i])
			folder->names[place_of(folder, former[i])] = former[i];
	free(former);
}

void names_add(struct folder *folder, const char *name)
{
	if (total >= MAX_NAMES)
		return;
	make_room(folder);
	uint32_t hash = hash_of(name), *place = &folder->names[place_of(folder, hash)];
	if (*place)
		return;
	*place = hash;
	folder->name_count++;
	total++;
}

bool names_have(const struct folder *folder, const char *name)
{
	return folder->name_room && folder->names[place_of(folder, hash_of(name))];
}

/* What follows without an empty place may have been put there because of it. */
void names_remove(struct folder *folder, const char *name)
{
	if (!names_have(folder, name))
		return;
	size_t mask = folder->name_room - 1, place = place_of(folder, hash_of(name));
	folder->names[place] = 0;
	for (size_t next = (place + 1) & mask; folder->names[next]; next = (next + 1) & mask) {
		uint32_t hash = folder->names[next];
		folder->names[next] = 0;
		folder->names[place_of(folder, hash)] = hash;
	}
	folder->name_count--;
	total--;
}

void names_clear(struct folder *folder)
{
	total -= folder->name_count;
	free(folder->names);
	folder->names = NULL;
	folder->name_count = folder->name_room = 0;
}
