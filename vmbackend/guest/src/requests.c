/* Requests of the host to a running machine, one line each way on a dedicated port.
 *
 *     fresh NANOSECONDS HEX   ->   fresh NANOSECONDS NOW | failed NANOSECONDS REASON
 *
 * Step the clock to that time (since the epoch) and reseed the random pool; NOW is the clock when the answer is written.
 * The stage handles it in its own process: after a restore, starting a process takes a machine many times as long, and
 * the host admits traffic only after this reply.
 */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_SIZE 1200 /* 512 bytes of randomness in hexadecimal, and the words before it */
#define SECOND 1000000000LL

int open_requests(void)
{
	char name[64], path[80];
	if (find_port(REQUESTS_PORT, name, sizeof name))
		return -1;
	snprintf(path, sizeof path, "/dev/%s", name);
	return open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
}

/* After a restore an emulated processor has to translate all code again, most of all for starting a process: this does it
 * once while the host still completes the wake. The stage's loop reaps the child. */
static void warm_up(void)
{
	if (fork())
		return;
	execl(KIT "/bin/busybox", "busybox", "true", NULL);
	_exit(EXIT_NOT_FOUND);
}

static bool resync(long long nanoseconds, const char *hex)
{
	struct timespec time = {.tv_sec = nanoseconds / SECOND, .tv_nsec = nanoseconds % SECOND};
	return !clock_settime(CLOCK_REALTIME, &time) && reseed_random(hex);
}

/* Non-blocking: a reply that the host does not read is dropped; the host retries. */
static void handle_request(int fd, const char *line)
{
	static char hex[LINE_SIZE];
	long long asked;
	struct timespec now;
	if (sscanf(line, "fresh %lld %1199[0-9a-f]", &asked, hex) != 2)
		return;
	if (!resync(asked, hex)) {
		dprintf(fd, "failed %lld %s\n", asked, strerror(errno));
		return;
	}
	clock_gettime(CLOCK_REALTIME, &now);
	dprintf(fd, "fresh %lld %lld\n", asked, now.tv_sec * SECOND + now.tv_nsec);
	warm_up();
}

/* Whether there was anything to read: a port without a host at its other end polls as readable and has nothing. */
bool handle_requests(int fd)
{
	static char line[LINE_SIZE + 1];
	static size_t used;
	ssize_t got = read(fd, line + used, LINE_SIZE - used);
	char *end;
	if (got <= 0)
		return false;
	used += (size_t)got;
	line[used] = 0;
	while ((end = memchr(line, '\n', used))) {
		*end++ = 0;
		handle_request(fd, line);
		used -= (size_t)(end - line);
		memmove(line, end, used + 1);
	}
	if (used == LINE_SIZE)
		used = 0; /* longer than any valid request */
	return true;
}
