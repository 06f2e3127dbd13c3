/* The folders that a scan has found and that are to be entered, in order. */
#ifndef WATCH_TASKS_H
#define WATCH_TASKS_H

#include <stdbool.h>

struct folder;

struct task { /* a folder to be entered */
	struct task *next;
	struct folder *parent; /* NULL: it is not in the tree any more */
	bool report, announce; /* what is in it; itself */
	char name[];
};

void task_add(struct folder *parent, const char *name, bool report, bool announce);
struct task *task_first(void); /* NULL: there is none */
void task_remove_first(void);
void tasks_forget(struct folder *folder);

#endif
