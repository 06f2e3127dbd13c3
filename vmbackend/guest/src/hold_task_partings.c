/* Tasks that are gone, of which the end is still to be said: many may go at once, and their records are more than a
 * connection has room for.
 */
#include "hold_task_partings.h"

#include "hold_frames.h"
#include "hold_state.h"
#include "hold_task_followers.h"
#include "hold_task_records.h"
#include "hold_task_table.h"

#include <stdlib.h>
#include <string.h>

struct parting {
	struct parting *next;
	struct follower *followers; /* who have not been told */
	struct stream *remover;     /* NULL: nobody waits for an answer */
	uint32_t removal;
	size_t size;
	uint8_t record[];
};

static struct parting *partings;

/* Without memory they lose their connections, and find out. */
static void break_waiting(struct task *task, struct follower *followers)
{
	if (task->remover)
		task->remover->broken = true;
	for (; followers; followers = follower_free(followers))
		followers->stream->broken = true;
}

void parting_begin(struct task *task)
{
	uint8_t data[RECORD_SIZE];
	struct follower *followers = followers_take(task);
	size_t size = record_encode(task, data);
	struct parting *parting = followers || task->remover ? malloc(sizeof *parting + size) : NULL;
	if (!parting) {
		break_waiting(task, followers);
		return;
	}
	*parting = (struct parting){.next = partings, .followers = followers, .size = size};
	parting->remover = task->remover;
	parting->removal = task->removal;
	memcpy(parting->record, data, size);
	partings = parting;
}

static bool say(const struct parting *parting, struct stream *stream, uint8_t type, uint32_t id)
{
	if (unsent(stream) >= OUT_LOW)
		return false;
	size_t frame = begin_frame(stream, type, id);
	put_bytes(stream, parting->record, parting->size);
	end_frame(stream, frame);
	return true;
}

static void serve_parting(struct parting *parting)
{
	if (parting->remover && say(parting, parting->remover, DONE, parting->removal)) {
		parting->remover->pending--;
		parting->remover = NULL;
	}
	for (struct follower **place = &parting->followers; *place;) {
		if (say(parting, (*place)->stream, TASK_ENDED, (*place)->id))
			*place = follower_free(*place);
		else
			place = &(*place)->next;
	}
}

void partings_serve(void)
{
	for (struct parting **place = &partings, *each; (each = *place);) {
		serve_parting(each);
		if (each->remover || each->followers) {
			place = &each->next;
			continue;
		}
		*place = each->next;
		free(each);
	}
}

void partings_leave(const struct stream *stream)
{
	for (struct parting *each = partings; each; each = each->next) {
		if (each->remover == stream)
			each->remover = NULL;
		for (struct follower **place = &each->followers; *place;) {
			if ((*place)->stream == stream)
				*place = follower_free(*place);
			else
				place = &(*place)->next;
		}
	}
}
