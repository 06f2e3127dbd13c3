/* `guest hold`: the terminals, watches and commands of a guest. README.md, "Held terminals and commands", describes the protocol. */
#ifndef HOLD_H
#define HOLD_H

#include "guest.h"

#include <stdint.h>

#define HOLD_VERSION 1
#define HOLD_MAGIC 0x484f4c44u /* "HOLD" */
#define SOCKET_NAME "socket"
#define CLIENT_ID_SIZE 16
#define MAX_STREAMS 16
#define MAX_TERMINALS 64
#define MAX_TERMINAL_ID 255
#define MAX_WATCHES 8
#define MAX_COMMANDS 64
#define COMMAND_OUTPUTS 2
#define MAX_VIEWS (2 * MAX_STREAMS) /* of a terminal: attached streams, and lost ones that are waited for */
#define MAX_INPUT (1 << 20)         /* bytes for a terminal that its program has not read */
#define MAX_PENDING 1024            /* requests of a stream that are answered later */
#define MAX_REQUEST (2 << 20)       /* bytes of a frame from a client, without its length */
#define MAX_WORDS 4096              /* arguments, variables or patterns of one request */
#define MAX_PATH_SIZE 4096
#define OUT_SIZE (128 << 10)
#define OUT_LOW (64 << 10)          /* requests are read while less is unsent: the rest is for answers that come later */
#define OUT_FILL (32 << 10)         /* output is added up to this: little is before the echo of a key */
#define READ_SIZE (32 << 10)        /* bytes of output in one read */
#define PIECE (8 << 10)             /* bytes of output in a frame */
#define REASON_SIZE 256
#ifndef KEPT_MS                     /* tests have a shorter one */
#define KEPT_MS 600000              /* an ended terminal that no client closed */
#endif
#define STUCK_MS 5000               /* a client that takes nothing while another one does */

enum request_type {
	HELLO = 1, CREATE, INPUT, RESIZE, LIST, CLOSE, ATTACH, DETACH, CREDIT, WATCH, UNWATCH, WATCH_CREDIT, BYE, MODES, RUN, STOP,
};
enum answer_type { WELCOME = 129, DONE, FAILED, OUTPUT, EXITED, EVENT, BEHIND, WRITTEN };
enum failure {
	BAD_REQUEST = 1, BAD_VERSION, NO_TERMINAL, NO_WATCH, TOO_MANY, INPUT_FULL, ENDED, BAD_SIZE, BAD_OFFSET,
	CANNOT_START, CANNOT_WATCH,
};

/* hold_frames.c: big-endian fields of a received frame; `bad` once one is missing or longer than the frame */
struct fields {
	uint8_t *data;
	size_t left;
	bool bad;
};
uint32_t take_number(struct fields *fields, int bytes);
uint64_t take_offset(struct fields *fields);
char *take_text(struct fields *fields, size_t limit);  /* malloc'ed, without NUL bytes inside; NULL if bad */
char **take_words(struct fields *fields);              /* NULL-terminated, to be freed with free_words; NULL if bad */
void free_words(char **words);

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
};
void put_number(struct stream *stream, uint64_t value, int bytes);
void put_bytes(struct stream *stream, const void *data, size_t size);
size_t begin_frame(struct stream *stream, uint8_t type, uint32_t id); /* its place, for end_frame */
void end_frame(struct stream *stream, size_t frame);
size_t unsent(const struct stream *stream);
void send_done(struct stream *stream, uint32_t request);
void send_failed(struct stream *stream, uint32_t request, enum failure code, const char *reason);

/* hold_streams.c */
extern struct stream *streams[MAX_STREAMS];
extern size_t stream_count;
extern uint64_t instance; /* of this process; terminal ids of another one mean nothing */
void stream_accept(int listener);
void stream_close(struct stream *stream);
bool streams_broken(void);
int stream_poll(struct pollfd *sources);     /* three for each stream; returns how many */
void stream_serve(const struct pollfd *sources, size_t count); /* of the first COUNT streams */

/* hold_requests.c */
void handle_frame(struct stream *stream, uint8_t type, uint32_t request, struct fields *fields);

/* hold_modes.c */
#define MODES_SIZE 512 /* of their text, at most */
struct modes { /* all zero in a fresh terminal */
	uint32_t changed; /* private modes that are not as in a fresh terminal */
	uint16_t alternate, mouse;
	bool insert, newline, keypad;
	char charset, region[24], cursor[8];
	size_t pending_size; /* of a sequence that is not complete */
	char pending[64];
};
void modes_follow(struct modes *modes, const uint8_t *data, size_t size);
size_t modes_text(const struct modes *modes, char text[MODES_SIZE]); /* what sets them in a fresh terminal, not terminated */

/* hold_buffer.c: the last bytes of a terminal's output, with their offset since its start */
struct buffer {
	uint8_t *data;
	size_t size;
	uint64_t start, end;
	struct modes modes; /* at START */
};
bool buffer_open(struct buffer *buffer, size_t size);
ssize_t buffer_read(struct buffer *buffer, int fd, size_t limit); /* one read of FD; forgets the oldest where it must */
size_t buffer_piece(const struct buffer *buffer, uint64_t offset, size_t limit, const uint8_t **data);

/* hold_terminals.c */
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
struct start { /* what CREATE and RUN ask for */
	uint16_t cols, rows;
	char *user, *directory;
	char **command, **environment;
};
extern struct terminal *terminals[MAX_TERMINALS];
extern size_t terminal_count;
extern size_t buffer_size;
extern long linger_ms;
void terminal_ids_open(int listener); /* go on with the ids of a process before this one in the listener's folder */
struct terminal *terminal_find(uint32_t id);
struct terminal *terminal_add(void); /* NULL: too many, or no memory */
void terminal_remove(struct terminal *terminal);
void terminals_reap(void); /* SIGCHLD */
int terminal_poll(struct pollfd *sources); /* two for each; returns how many */
void terminal_serve(const struct pollfd *sources, size_t count);
int terminals_expire(void); /* returns milliseconds until the next call, or -1 */

/* hold_views.c */
void put_exit(struct stream *stream, const struct terminal *terminal); /* how it ended: kind (0: code, 1: signal), number */
bool view_open(struct terminal *terminal, struct stream *stream, uint64_t offset, uint32_t window);
struct view *view_find(struct terminal *terminal, const struct stream *stream);
void views_leave(struct stream *stream);  /* its connection is gone */
size_t views_room(const struct terminal *terminal); /* bytes that may be read without loss for a client */
int views_expire(struct terminal *terminal);
void send_output(struct stream *stream);

/* hold_input.c */
bool input_add(struct terminal *terminal, struct stream *stream, uint32_t request, const uint8_t *data, size_t size);
void input_write(struct terminal *terminal);
void input_drop(struct terminal *terminal);
void input_forget(struct terminal *terminal, const struct stream *stream);

/* hold_watches.c */
void handle_watch(struct stream *stream, uint8_t type, uint32_t request, struct fields *fields);
void watches_leave(const struct stream *stream);
int watch_poll(struct pollfd *sources); /* one for each; returns how many */
void watch_serve(const struct pollfd *sources, size_t count);

/* hold_start.c */
bool terminal_start(struct terminal *terminal, const struct start *start); /* false with errno */
void command_exec(const struct start *start, int out, int err) __attribute__((noreturn)); /* in the command's process */

/* hold_commands.c */
void handle_command(struct stream *stream, uint8_t type, uint32_t request, struct fields *fields);
void commands_leave(const struct stream *stream); /* its connection is gone */
void command_ended(pid_t pid, int status);        /* it was waited for; PID may be no command's */
int commands_poll(struct pollfd *sources);        /* COMMAND_OUTPUTS for each; returns how many */
void commands_serve(const struct pollfd *sources, size_t count); /* of the first COUNT commands */
int commands_expire(void); /* returns milliseconds until the next call, or -1 */

#endif
