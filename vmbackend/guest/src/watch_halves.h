/* The first halves of renames whose second has not come. */
#ifndef WATCH_HALVES_H
#define WATCH_HALVES_H

#include <stdbool.h>
#include <stdint.h>

struct event;
struct folder;

struct half {
	uint32_t cookie;
	struct folder *folder; /* NULL: no folder, or none that was watched */
	struct event *event;   /* NULL: it was sent */
	unsigned changes;      /* of the tree so far: with others between the halves, paths may mean other entries */
	long long until;
};

bool halves_are_full(void);
void half_add(struct half half);
const struct half *half_first(void); /* the oldest; NULL: there are none */
const struct half *half_find(uint32_t cookie);
struct half half_take(const struct half *half);
void halves_forget(const struct folder *folder);
void halves_sent(const struct event *event);

#endif
