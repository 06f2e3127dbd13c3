/* Events wait for changes that belong to them, in order. */
#ifndef WATCH_EVENTS_H
#define WATCH_EVENTS_H

#include <stdbool.h>

#define SETTLE_MS 50 /* changes of a file within that are one event; how long the second half of a rename is waited for */

enum event_kind { READY = 1, ADDED, CHANGED, REMOVED, RENAMED, OVERFLOWED, GONE };

struct event;

void event_add(enum event_kind kind, bool is_folder, const char *path, const char *other);
struct event *event_newest(void);
void event_rename(struct event *event, const char *other); /* a removal, until it was sent */
int events_send(int fd); /* what is due; returns milliseconds until more is, -1: nothing, -2: FD is full, -3: closed */

#endif
