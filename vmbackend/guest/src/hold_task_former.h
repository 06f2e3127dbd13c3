#ifndef HOLD_TASK_FORMER_H
#define HOLD_TASK_FORMER_H

void tasks_open(void); /* finds those of a former process */

#endif
