#ifndef WATCH_FOUND_H
#define WATCH_FOUND_H

#include <stdbool.h>

struct folder;

void tree_remember(const struct folder *folder, const char *name);
bool tree_reported(const struct folder *folder, const char *name); /* by a scan, before its event */
void tree_forget(const struct folder *folder, const char *name);
void tree_settled(void); /* no events of the time of scans are left */

#endif
