#ifndef HOLD_TERMINALS_H
#define HOLD_TERMINALS_H

#include <stddef.h>
#include <stdint.h>

struct pollfd;

void terminal_ids_open(int listener); /* go on with the ids of a process before this one in the listener's folder */
struct terminal *terminal_find(uint32_t id);
struct terminal *terminal_add(void); /* NULL: too many, or no memory */
void terminal_remove(struct terminal *terminal);
void terminals_reap(void); /* SIGCHLD */
int terminal_poll(struct pollfd *sources); /* two for each; returns how many */
void terminal_serve(const struct pollfd *sources, size_t count);
int terminals_expire(void); /* returns milliseconds until the next call, or -1 */

#endif
