#ifndef WATCH_NAMES_H
#define WATCH_NAMES_H

#include <stdbool.h>

struct folder;

void names_add(struct folder *folder, const char *name);
void names_remove(struct folder *folder, const char *name);
bool names_have(const struct folder *folder, const char *name);
void names_clear(struct folder *folder);

#endif
