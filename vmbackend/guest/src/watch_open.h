/* Descriptors of folders, or -1. */
#ifndef WATCH_OPEN_H
#define WATCH_OPEN_H

#include <stdbool.h>

struct folder;

extern int inotify;

void set_root(int guest, const char *path); /* the user's file system, and the path of the folder in it */
int open_root(void);
int open_beneath(int folder, const char *path); /* on its file system, through no links */
/* Where the tree has it. ENOENT, ENOTDIR: events of it, or of one above, are still to come, or something else is there; EXDEV:
 * a mount covers it, or one above; ENAMETOOLONG; other errors: it cannot be found out at present. */
int open_known(const struct folder *folder);
int open_parent(struct folder *folder); /* the same, kept until the next one */
void close_parent(void);
void forget_parent(const struct folder *folder);
int add_watch(int fd); /* of inotify */
bool tree_is_there(const struct folder *folder); /* at its path, at present; false with errno, as open_known */
bool root_is_gone(void); /* false where that cannot be found out: no descriptor is left */

#endif
