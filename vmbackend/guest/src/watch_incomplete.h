#ifndef WATCH_INCOMPLETE_H
#define WATCH_INCOMPLETE_H

#include <stdbool.h>

struct folder;

void tree_set_incomplete(struct folder *folder);
void tree_doubt(void); /* all folders are incomplete */
void incomplete_forget(struct folder *folder);
int attempt_wait(void);            /* milliseconds until they are to be tried again, -1: there are none */
bool attempt_begin_piece(void);    /* false: nothing is due */
struct folder *attempt_next(void); /* the next that this attempt has not had; without its mark. NULL: no more, or not now */
bool attempt_end_piece(void);      /* returns whether it was the last of an attempt that leaves some */

#endif
