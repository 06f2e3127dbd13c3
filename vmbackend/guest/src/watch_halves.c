#include "watch_halves.h"

#include <stddef.h>
#include <string.h>

#define MAX_HALVES 256

static struct half halves[MAX_HALVES]; /* the oldest first */
static size_t half_count;

bool halves_are_full(void)
{
	return half_count == MAX_HALVES;
}

void half_add(struct half half)
{
	halves[half_count++] = half;
}

const struct half *half_first(void)
{
	return half_count ? halves : NULL;
}

const struct half *half_find(uint32_t cookie)
{
	for (size_t i = 0; i < half_count; i++)
		if (halves[i].cookie == cookie)
			return halves + i;
	return NULL;
}

struct half half_take(const struct half *half)
{
	struct half taken = *half;
	size_t place = (size_t)(half - halves);
	memmove(halves + place, halves + place + 1, (--half_count - place) * sizeof *halves);
	return taken;
}

void halves_forget(const struct folder *folder)
{
	for (size_t i = 0; i < half_count; i++)
		if (halves[i].folder == folder)
			halves[i].folder = NULL;
}

void halves_sent(const struct event *event)
{
	for (size_t i = 0; i < half_count; i++)
		if (halves[i].event == event)
			halves[i].event = NULL;
}
