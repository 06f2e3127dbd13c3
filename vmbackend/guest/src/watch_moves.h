#ifndef WATCH_MOVES_H
#define WATCH_MOVES_H

#include <stdbool.h>
#include <stdint.h>

struct event;
struct folder;

void move_begin(uint32_t cookie, struct folder *folder, const char *path, bool is_folder);
bool move_take(uint32_t cookie, struct folder **folder, struct event **event);
int moves_expire(void); /* what left the tree; returns milliseconds until the next */
void moves_give_up(void);
bool moves_wait(void);
void move_left(const struct folder *folder, const char *name, uint32_t cookie);    /* its first half was handled */
void move_arrived(const struct folder *folder, const char *name, uint32_t cookie); /* its second; adds what was exchanged */

#endif
