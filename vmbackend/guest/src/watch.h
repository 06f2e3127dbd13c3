/* `guest watch`: changes below a folder, by inotify. One process for each watch, so that its memory, its time and its end
 * are its own. README.md, "Watches", describes what it reports. */
#ifndef WATCH_H
#define WATCH_H

#include "guest.h"

#include <stdint.h>

#define MAX_WATCH_PATH 4096
#define SETTLE_MS 50          /* changes of a file within that are one event; how long the second half of a rename is waited for */
#define MAX_FOLDERS 131072    /* of one watch */
#define MAX_PENDING_EVENTS 65536
#define MAX_PENDING_BYTES (8 << 20)
#define SLOW_READER_MS 1000   /* without room for a byte, when more cannot wait */

enum event_kind { READY = 1, ADDED, CHANGED, REMOVED, RENAMED, OVERFLOWED, GONE };

extern char **ignore_patterns;
bool ignored(const char *path, bool is_folder);

/* watch_events.c: events wait for changes that belong to them, in order */
void event_add(enum event_kind kind, bool is_folder, const char *path, const char *other);
struct event *event_newest(void);
void event_rename(struct event *event, const char *other); /* a removal, until it was sent */
int events_send(int fd);        /* what is due; returns milliseconds until more is, -1: nothing, -2: FD is full, -3: closed */

/* watch_tree.c: the watched folders */
struct folder {
	int watch;
	struct folder *parent; /* NULL: the root */
	char *name;
	size_t children;
	size_t tasks;    /* folders in it that are to be entered */
	unsigned attempt; /* during or after which it was marked as incomplete */
	bool moving;     /* not found by its name */
	uint32_t *names; /* watch_names.c */
	size_t name_count, name_room;
	struct folder *next_by_watch, *next_by_name;
	struct folder *next_incomplete, **incomplete_place; /* NULL: all folders in it were entered */
};
extern int inotify;
extern struct folder *root_folder;
extern size_t folder_count;
extern unsigned tree_changes;          /* times that a folder was moved or removed */
void *get_memory(size_t size);         /* zeros; ends the process where there is none */
char *copy_text(const char *text);     /* as get_memory */
struct folder *tree_add(int watch, struct folder *parent, const char *name);
struct folder *tree_find(int watch);
struct folder *tree_child(const struct folder *parent, const char *name);
bool tree_path(const struct folder *folder, const char *name, char *path); /* of MAX_WATCH_PATH; false: too long */
bool tree_is_below(const struct folder *folder, const struct folder *top);
bool tree_is_moving(const struct folder *folder); /* it or a folder above it */
void tree_detach(struct folder *folder);
void tree_move(struct folder *folder, struct folder *parent, const char *name);
void tree_drop(struct folder *folder);            /* with everything below it */
void tree_doubt(void);                            /* all folders are incomplete */
void tree_clear(void);

/* watch_open.c: descriptors, or -1 */
void set_root(int guest, const char *path); /* the user's file system, and the path of the folder in it */
int open_root(void);
int open_beneath(int folder, const char *path); /* on its file system, through no links */
/* Where the tree has it. ENOENT, ENOTDIR: events of it, or of one above, are still to come, or something else is there; EXDEV:
 * a mount covers it, or one above; ENAMETOOLONG; other errors: it cannot be found out at present. */
int open_known(const struct folder *folder);
int open_parent(struct folder *folder);      /* the same, kept until the next one */
void close_parent(void);
void forget_parent(const struct folder *folder);
int add_watch(int fd); /* of inotify */
bool tree_is_there(const struct folder *folder); /* at its path, at present; false with errno, as open_known */
bool root_is_gone(void); /* false where that cannot be found out: no descriptor is left */

/* watch_scan.c */
bool tree_open(void);    /* watches everything below the root; silently. False with errno */
bool tree_rebuild(void); /* after events were lost */
void tree_enter(struct folder *parent, const char *name, bool report); /* watches first, then scans */
bool tree_complete(void); /* enters what could not be entered before, once that is due; false: the root is gone */
void scan_forget(struct folder *folder);

/* watch_incomplete.c: folders in which a folder could not be entered */
void tree_set_incomplete(struct folder *folder);
void incomplete_forget(struct folder *folder);
int attempt_wait(void);          /* milliseconds until they are to be tried again, -1: there are none */
bool attempt_begin_piece(void);  /* false: nothing is due */
struct folder *attempt_next(void); /* the next that this attempt has not had; without its mark. NULL: no more, or not now */
bool attempt_end_piece(void);    /* returns whether it was the last of an attempt that leaves some */

/* watch_limits.c */
void report_limit(const char *path, const char *reason); /* below the path nothing is watched */
void report_long(const struct folder *folder);           /* an entry's path is too long */
void limit_lifted(void);

/* watch_found.c */
void tree_remember(const struct folder *folder, const char *name);
bool tree_reported(const struct folder *folder, const char *name); /* by a scan, before its event */
void tree_forget(const struct folder *folder, const char *name);
void tree_settled(void); /* no events of the time of scans are left */

/* watch_names.c: what is in a folder beside folders */
void names_add(struct folder *folder, const char *name);
void names_remove(struct folder *folder, const char *name);
bool names_have(const struct folder *folder, const char *name);
void names_clear(struct folder *folder);

/* watch_moves.c: first halves of renames */
void move_begin(uint32_t cookie, struct folder *folder, const char *path, bool is_folder);
bool move_take(uint32_t cookie, struct folder **folder, struct event **event);
int moves_expire(void); /* what left the tree; returns milliseconds until the next */
void moves_give_up(void);
bool moves_wait(void);
void move_left(const struct folder *folder, const char *name, uint32_t cookie);    /* its first half was handled */
void move_arrived(const struct folder *folder, const char *name, uint32_t cookie); /* its second; adds what was exchanged */
void moves_forget(const struct folder *folder);
void moves_sent(const struct event *event);

#endif
