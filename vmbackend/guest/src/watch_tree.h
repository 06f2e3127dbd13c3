/* The watched folders. */
#ifndef WATCH_TREE_H
#define WATCH_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_WATCH_PATH 4096

struct folder {
	int watch;
	struct folder *parent; /* NULL: the root */
	char *name;
	size_t children;
	size_t tasks;     /* watch_tasks.c: folders in it that are to be entered */
	unsigned attempt; /* watch_incomplete.c: during or after which it was marked as incomplete */
	bool moving;      /* not found by its name */
	uint32_t *names;  /* watch_names.c */
	size_t name_count, name_room;
	struct folder *next_by_watch, *next_by_name;
	struct folder *next_incomplete, **incomplete_place; /* NULL: all folders in it were entered */
};

extern struct folder *root_folder;
extern size_t folder_count;
extern unsigned tree_changes; /* times that a folder was moved or removed */

struct folder *tree_add(int watch, struct folder *parent, const char *name);
struct folder *tree_find(int watch);
struct folder *tree_child(const struct folder *parent, const char *name);
void tree_visit(void (*visit)(struct folder *folder, void *about), void *about); /* VISIT may remove that folder */
bool tree_path(const struct folder *folder, const char *name, char *path); /* of MAX_WATCH_PATH; false: too long */
bool tree_is_below(const struct folder *folder, const struct folder *top);
bool tree_is_moving(const struct folder *folder); /* it or a folder above it */
void tree_detach(struct folder *folder);
void tree_move(struct folder *folder, struct folder *parent, const char *name);
void tree_remove(struct folder *folder); /* without children; tree_drop and tree_clear use it */

#endif
