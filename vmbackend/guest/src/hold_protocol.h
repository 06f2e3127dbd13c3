/* The terms of the hold's protocol, which README.md, "Held terminals and commands", describes. */
#ifndef HOLD_PROTOCOL_H
#define HOLD_PROTOCOL_H

#define HOLD_VERSION 1
#define HOLD_MAGIC 0x484f4c44u /* "HOLD" */
#define SOCKET_NAME "socket"
#define CLIENT_ID_SIZE 16
#define MAX_REQUEST (2 << 20) /* bytes of a frame from a client, without its length */
#define MAX_WORDS 4096        /* arguments, variables or patterns of one request */
#define MAX_PATH_SIZE 4096
#define PIECE (8 << 10)       /* bytes of output in a frame */
#define REASON_SIZE 256

enum request_type {
	HELLO = 1, CREATE, INPUT, RESIZE, LIST, CLOSE, ATTACH, DETACH, CREDIT, WATCH, UNWATCH, WATCH_CREDIT, BYE, MODES, RUN, STOP,
	TASK_START, TASK_LIST, TASK_SHOW, TASK_INPUT, TASK_REMOVE, TASK_FOLLOW, TASK_CREDIT, TASK_LEAVE,
	TERMINAL_SHOW, TERMINAL_READ, KEEP_WATCH, KEPT_LIST, KEPT_SHOW, KEPT_READ, KEPT_END, CHANGES,
	CONNECT = 48, CONNECT_SEND, CONNECT_CREDIT, CONNECT_CLOSE,
};
enum answer_type { WELCOME = 129, DONE, FAILED, OUTPUT, EXITED, EVENT, BEHIND, WRITTEN, TASK_OUTPUT, TASK_ENDED };
enum connect_answer_type { CONNECT_DATA = 48, CONNECT_ENDED, CONNECT_GRANT };
enum failure {
	BAD_REQUEST = 1, BAD_VERSION, NO_TERMINAL, NO_WATCH, TOO_MANY, INPUT_FULL, ENDED, BAD_SIZE, BAD_OFFSET,
	CANNOT_START, CANNOT_WATCH, NO_TASK,
	CANNOT_CONNECT = 48,
};

#endif
