/* What scans have reported, until the events of that time were read. */
#include "watch_found.h"

#include "watch_memory.h"
#include "watch_tree.h"

#include <stdlib.h>
#include <string.h>

#define BUCKETS 4096

struct found {
	struct found *next;
	int watch; /* of its folder */
	char name[];
};

static struct found *found[BUCKETS];
static size_t found_count;

static unsigned place_of(const struct folder *folder, const char *name)
{
	unsigned hash = 2166136261u ^ (unsigned)folder->watch * 31u;
	for (; *name; name++)
		hash = (hash ^ (uint8_t)*name) * 16777619u;
	return hash % BUCKETS;
}

void tree_remember(const struct folder *folder, const char *name)
{
	struct found *entry = get_memory(sizeof *entry + strlen(name) + 1), **place = &found[place_of(folder, name)];
	entry->watch = folder->watch;
	strcpy(entry->name, name);
	entry->next = *place;
	*place = entry;
	found_count++;
}

static struct found **look_up(const struct folder *folder, const char *name)
{
	struct found **place = &found[place_of(folder, name)];
	while (*place && ((*place)->watch != folder->watch || strcmp((*place)->name, name)))
		place = &(*place)->next;
	return place;
}

bool tree_reported(const struct folder *folder, const char *name)
{
	return *look_up(folder, name);
}

void tree_forget(const struct folder *folder, const char *name)
{
	struct found **place = look_up(folder, name), *entry = *place;
	if (!entry)
		return;
	*place = entry->next;
	found_count--;
	free(entry);
}

void tree_settled(void)
{
	for (size_t i = 0; found_count && i < BUCKETS; i++) {
		for (struct found *entry; (entry = found[i]); found_count--) {
			found[i] = entry->next;
			free(entry);
		}
	}
}

