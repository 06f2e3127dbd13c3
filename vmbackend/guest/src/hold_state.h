/* The connections and terminals of a hold, for all that serve them. */
#ifndef HOLD_STATE_H
#define HOLD_STATE_H

#include "hold_buffer.h"
#include "hold_protocol.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MAX_STREAMS 16
#define MAX_TERMINALS 64
#define MAX_VIEWS (2 * MAX_STREAMS) /* of a terminal: attached streams, and lost ones that are waited for */
#define MAX_PENDING 1024            /* requests of a stream that are answered later */
#define OUT_SIZE (128 << 10)
#define OUT_LOW (64 << 10)          /* requests are read while less is unsent: the rest is for answers that come later */
#define OUT_FILL (32 << 10)         /* output is added up to this: little is before the echo of a key */

/* One `guest attach`: its standard input and output, and the connection that keeps it running. */
struct stream {
	int control, in, out;
	bool greeted, leaving, broken;
	uint8_t client[CLIENT_ID_SIZE];
	uint8_t *request; /* the frame that is being read, with its length */
	size_t request_size, request_capacity;
	uint8_t answer[OUT_SIZE];
	size_t answer_start, answer_end;
	int pending;
	size_t next; /* the terminal whose output is sent next */
	size_t next_task;
	bool awaits_change; /* hold_changes.c */
	uint32_t change_request;
	uint64_t known_changes;
	bool has_more; /* of the output of tasks, at once: its turn has ended */
};

struct view { /* of a client on a terminal */
	bool used;
	struct stream *stream; /* NULL: it lost its connection, and is waited for until UNTIL */
	uint8_t client[CLIENT_ID_SIZE];
	uint64_t sent, received;
	uint32_t window;
	bool exit_sent;
	long long until;
	long long moved_at; /* when it last did not stop the program */
};

struct input {
	struct input *next;
	struct stream *stream; /* NULL: it is gone */
	uint32_t request;
	size_t size, done;
	uint8_t data[];
};

struct terminal {
	uint32_t id;
	int master, starting; /* `starting`: the child reports why it cannot start, and closes it when it has; else -1 */
	int cgroup;
	pid_t pid;            /* 0: it was waited for */
	int status;
	uint16_t cols, rows;
	struct buffer output;
	char **command;       /* its first words */
	int64_t created;      /* milliseconds of the clock */
	uint32_t scrollback;  /* bytes that its creator wants to be shown of it */
	struct view views[MAX_VIEWS];
	struct input *inputs;
	size_t input_size;
	struct stream *creator;
	uint32_t creation, creator_window;
	char reason[REASON_SIZE];
	size_t reason_size, rest; /* REST: what may still be read after the program's exit */
	long long paused_until;   /* no process has the terminal open */
	long long ended_at;       /* 0: it has not */
};

extern struct stream *streams[MAX_STREAMS];
extern size_t stream_count;
extern uint64_t instance; /* of this process; terminal ids of another one mean nothing */
extern struct terminal *terminals[MAX_TERMINALS];
extern size_t terminal_count;
extern size_t buffer_size; /* of each terminal */
extern long linger_ms;     /* how long a lost client is waited for */
const char *task_folder(void); /* the files of tasks */

#endif
