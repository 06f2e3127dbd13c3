#ifndef WATCH_LIMITS_H
#define WATCH_LIMITS_H

struct folder;

void report_limit(const char *path, const char *reason); /* below the path nothing is watched */
void report_long(const struct folder *folder);           /* an entry's path is too long */
void limit_lifted(void);

#endif
