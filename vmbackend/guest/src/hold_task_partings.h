#ifndef HOLD_TASK_PARTINGS_H
#define HOLD_TASK_PARTINGS_H

struct stream;
struct task;

void parting_begin(struct task *task);              /* its last record is for its followers, and for who has removed it */
void partings_serve(void);                          /* says it to those who have room */
void partings_leave(const struct stream *stream);   /* its connection is gone */

#endif
