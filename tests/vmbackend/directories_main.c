/* Makes the folders ARGV[2], ... as a machine does at its start, with the folder ARGV[1] as its root. */
#define _GNU_SOURCE
#include "guest.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static char **paths;

const char *config_next(const char *key, size_t *position)
{
	(void)key;
	return paths[*position] ? paths[(*position)++] : NULL;
}

void log_boot(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
}

int main(int argc, char **argv)
{
	umask(022);
	if (argc < 2 || chdir(argv[1]) || chroot("."))
		return 1;
	paths = argv + 2;
	make_directories();
	return 0;
}
