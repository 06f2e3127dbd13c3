#ifndef WATCH_PATTERNS_H
#define WATCH_PATTERNS_H

#include <stdbool.h>

void patterns_set(char **patterns); /* of what is left out; kept, not copied */
bool patterns_anchored(void);       /* their meaning for an entry depends on more than its name */
bool ignored(const char *path, bool is_folder);

#endif
