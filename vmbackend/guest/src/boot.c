/* What every step of the start reports: progress lines of the boot log, and the failure that ends the start. */
#define _GNU_SOURCE
#include "guest.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/reboot.h>
#include <unistd.h>

void log_boot(const char *format, ...)
{
	char line[512];
	va_list args;
	va_start(args, format);
	vsnprintf(line, sizeof line, format, args);
	va_end(args);
	long long now = now_ms();
	dprintf(STDERR_FILENO, "[%5lld.%03lld] kit: %s\n", now / 1000, now % 1000, line);
}

void boot_fail(const char *format, ...)
{
	char line[512];
	va_list args;
	va_start(args, format);
	vsnprintf(line, sizeof line, format, args);
	va_end(args);
	dprintf(STDERR_FILENO, "\nkit: the machine cannot start: %s\n", line);
	sync();
	reboot(RB_POWER_OFF);
	for (;;)
		pause();
}
