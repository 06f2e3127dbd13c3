#ifndef WATCH_DROP_H
#define WATCH_DROP_H

struct folder;

void tree_drop(struct folder *folder); /* with everything below it */
void tree_clear(void);

#endif
