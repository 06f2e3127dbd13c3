#ifndef HOLD_COMMANDS_H
#define HOLD_COMMANDS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MAX_COMMANDS 64
#define COMMAND_OUTPUTS 2

struct fields;
struct pollfd;
struct stream;

void handle_command(struct stream *stream, uint8_t type, uint32_t request, struct fields *fields);
void commands_leave(const struct stream *stream); /* its connection is gone */
void command_ended(pid_t pid, int status);        /* it was waited for; PID may be no command's */
int commands_poll(struct pollfd *sources);        /* COMMAND_OUTPUTS for each; returns how many */
void commands_serve(const struct pollfd *sources, size_t count); /* of the first COUNT commands */
int commands_expire(void); /* returns milliseconds until the next call, or -1 */

#endif
