/* Whether there are other terminals or kept watches than before, for clients that wait for it. */
#ifndef HOLD_CHANGES_H
#define HOLD_CHANGES_H

#include <stdint.h>

struct fields;
struct stream;

void change_note(void);
void handle_changes(struct stream *stream, uint32_t request, struct fields *fields);
void changes_serve(void); /* answers who waits, as their streams have room */

#endif
