#ifndef HOLD_TASK_FOLLOWERS_H
#define HOLD_TASK_FOLLOWERS_H

#include "hold_task_reading.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_FOLLOWERS 64 /* of a task */

struct stream;
struct task;

struct follower {
	struct follower *next;
	struct stream *stream; /* NULL: it is gone, and waited for */
	uint32_t id;           /* of its stream's choice */
	struct log_place place; /* of what is sent next */
	uint64_t received;
	uint32_t window;
	uint64_t skip[2]; /* bytes of each output that it does not want */
	bool once;        /* it wants what there is now, up to END, and no program waits for it */
	uint64_t end;
	long long counts_until;
	bool ignored; /* it took nothing for that long */
};

extern size_t follower_count; /* of all tasks */

struct follower *follower_find(const struct task *task, const struct stream *stream, uint32_t id);
struct follower *follower_add(struct task *task, struct stream *stream, uint32_t id, uint64_t offset); /* NULL: too many */
void follower_credit(struct follower *follower, uint64_t received, uint32_t window);
void follower_leave(struct task *task, struct follower *follower);
uint64_t followers_need(const struct task *task);  /* the oldest offset that somebody counts on */
int followers_expire(struct task *task);           /* returns milliseconds until the next call, or -1 */
struct follower *followers_take(struct task *task); /* the connected ones, of a task that goes */
struct follower *follower_free(struct follower *follower); /* returns the next one */
void followers_leave(const struct stream *stream); /* its connection is gone */
bool followers_wait(const struct task *task);      /* for what the log has: not those that take nothing of it */
void send_task_output(struct stream *stream, int *pieces); /* PIECES: how many more in this turn */

#endif
