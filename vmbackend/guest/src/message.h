/* A message of the host that gives this machine another identity; one in each process. The format is in message.c. */
#ifndef MESSAGE_H
#define MESSAGE_H

#include <stdbool.h>
#include <stddef.h>

enum message_kind {
	MESSAGE_BOOT = 1, /* of a boot template, before it read its configuration */
	MESSAGE_ASSIGN,   /* of a machine that was booted as nobody's */
	MESSAGE_RENEW,    /* of one in which programs ran, and whose memory was loaded */
};

enum message_state { MESSAGE_NONE, MESSAGE_PART, MESSAGE_WHOLE, MESSAGE_INVALID };

/* One thing that the message asks for. `take` returns false with errno. */
struct item {
	const char *name;
	bool (*take)(void);
};

bool message_begins(const char *data, size_t size); /* whether data that was read is the start of one */
size_t message_take(const char *data, size_t size); /* how much of it belongs to the message */
enum message_state message_state(void);
enum message_kind message_kind(void);
const char *message_get(const char *key); /* a record of a whole one; NULL with errno */
void message_drop_late(void);             /* one whose rest did not come in time */
void message_end(void);                   /* forgets it */
/* Takes one item after another and answers with WORD and the name of each; or names the one that failed. */
bool message_take_items(int fd, const char *word, const struct item *items, size_t count);

/* Items of more than one kind. */
bool take_entropy(void);
bool take_clock(void);
bool take_configuration(void);
bool take_mac(void);
bool take_uuid(void); /* shown by show_loaded_uuid */
bool take_generation(void);

#endif
