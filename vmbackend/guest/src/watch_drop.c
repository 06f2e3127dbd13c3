/* Folders leave the tree: all that have kept something of them forget it. */
#include "watch_drop.h"

#include "watch_halves.h"
#include "watch_incomplete.h"
#include "watch_limits.h"
#include "watch_names.h"
#include "watch_open.h"
#include "watch_tasks.h"
#include "watch_tree.h"

#include <sys/inotify.h>

static void remove_folder(struct folder *folder)
{
	halves_forget(folder);
	forget_parent(folder);
	tasks_forget(folder);
	incomplete_forget(folder);
	limit_lifted();
	names_clear(folder);
	tree_remove(folder);
}

static void drop_leaf(struct folder *folder, void *top)
{
	if (folder == top || folder->children || !tree_is_below(folder, top))
		return;
	inotify_rm_watch(inotify, folder->watch);
	remove_folder(folder);
}

/* Leaves first: each has a parent until it is removed. */
void tree_drop(struct folder *top)
{
	while (top->children)
		tree_visit(drop_leaf, top);
	inotify_rm_watch(inotify, top->watch);
	remove_folder(top);
}

static void clear_leaf(struct folder *folder, void *root)
{
	if (folder != root && !folder->children)
		remove_folder(folder);
}

void tree_clear(void)
{
	while (root_folder->children)
		tree_visit(clear_leaf, root_folder);
	remove_folder(root_folder);
}
