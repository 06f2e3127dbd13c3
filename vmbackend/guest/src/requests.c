/* What the host asks of a running machine, one line each way on a port of its own.
 *
 *     fresh NANOSECONDS HEX   ->   fresh NANOSECONDS NOW | failed NANOSECONDS REASON
 *
 * Step the clock to that time (since the epoch) and reseed the random pool; NOW is the clock when the answer is written.
 * The stage does it itself: a machine that has just been woken takes many times as long to start a process, and before
 * traffic enters it everything waits for this.
 */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_ROOM 1200 /* 512 bytes of randomness in hexadecimal, and the words before it */
#define SECOND 1000000000LL

int open_requests(void)
{
	char name[64], path[80];
	if (find_port(REQUESTS_PORT, name, sizeof name))
		return -1;
	snprintf(path, sizeof path, "/dev/%s", name);
	return open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
}

/* After a load an emulated processor has to translate everything anew, the way to a first program most of all: it goes
 * that way once while the host still ends the wake. The stage's loop reaps it. */
static void warm_up(void)
{
	if (fork())
		return;
	execl(KIT "/bin/busybox", "busybox", "true", NULL);
	_exit(EXIT_NOT_FOUND);
}

static bool renew(long long nanoseconds, const char *hex)
{
	struct timespec time = {.tv_sec = nanoseconds / SECOND, .tv_nsec = nanoseconds % SECOND};
	return !clock_settime(CLOCK_REALTIME, &time) && reseed_random(hex);
}

/* What a host that does not read would make wait is dropped: it asks again. */
static void answer(int fd, const char *line)
{
	static char hex[LINE_ROOM];
	long long asked;
	struct timespec now;
	if (sscanf(line, "fresh %lld %1199[0-9a-f]", &asked, hex) != 2)
		return;
	if (!renew(asked, hex)) {
		dprintf(fd, "failed %lld %s\n", asked, strerror(errno));
		return;
	}
	clock_gettime(CLOCK_REALTIME, &now);
	dprintf(fd, "fresh %lld %lld\n", asked, now.tv_sec * SECOND + now.tv_nsec);
	warm_up();
}

void answer_requests(int fd)
{
	static char line[LINE_ROOM + 1];
	static size_t used;
	ssize_t got = read(fd, line + used, LINE_ROOM - used);
	char *end;
	if (got <= 0)
		return;
	used += (size_t)got;
	line[used] = 0;
	while ((end = memchr(line, '\n', used))) {
		*end++ = 0;
		answer(fd, line);
		used -= (size_t)(end - line);
		memmove(line, end, used + 1);
	}
	if (used == LINE_ROOM)
		used = 0; /* no request of ours is that long */
}
