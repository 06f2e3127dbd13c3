#ifndef WATCH_SCAN_H
#define WATCH_SCAN_H

#include <stdbool.h>

struct folder;

bool tree_open(void);     /* watches everything below the root; silently. False with errno */
bool tree_rebuild(void);  /* after events were lost */
void tree_enter(struct folder *parent, const char *name, bool report); /* watches first, then scans */
bool tree_complete(void); /* enters what could not be entered before, once that is due; false: the root is gone */

#endif
