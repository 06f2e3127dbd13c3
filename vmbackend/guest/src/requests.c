/* Requests of the host to a running machine on a dedicated port: messages (message.c), and lines, one each way.
 *
 *     fresh NANOSECONDS HEX   ->   fresh NANOSECONDS NOW | failed NANOSECONDS REASON
 *     freeze NUMBER           ->   frozen NUMBER | failed NUMBER REASON
 *     thaw NUMBER             ->   thawed NUMBER | failed NUMBER REASON
 *
 * `fresh` steps the clock to that time (since the epoch) and reseeds the random pool; NOW is the clock when the answer is
 * written. Frozen programs go on then, too. `thaw` fails if they ran since `freeze`: they run in either case.
 * The stage handles it in its own process: after a restore, starting a process takes a machine many times as long, and
 * the host admits traffic only after this reply.
 */
#define _GNU_SOURCE
#include "guest.h"
#include "message.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define HEX_SIZE 1200 /* 512 bytes of randomness in hexadecimal, and more */
#define READ_SIZE 4096 /* longer than any line */
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

static void answer_fresh(int fd, long long asked, const char *hex)
{
	struct timespec now;
	if (!resync(asked, hex)) {
		dprintf(fd, "failed %lld %s\n", asked, strerror(errno));
		return;
	}
	clock_gettime(CLOCK_REALTIME, &now);
	dprintf(fd, "fresh %lld %lld\n", asked, now.tv_sec * SECOND + now.tv_nsec);
	thaw_programs();
	warm_up();
}

static void answer(int fd, long long asked, bool done, const char *word)
{
	if (done)
		dprintf(fd, "%s %lld\n", word, asked);
	else
		dprintf(fd, "failed %lld %s\n", asked, strerror(errno));
}

/* Non-blocking: a reply that the host does not read is dropped; the host retries. */
static void handle_request(int fd, const char *line)
{
	static char hex[HEX_SIZE];
	long long asked;
	if (sscanf(line, "fresh %lld %1199[0-9a-f]", &asked, hex) == 2)
		answer_fresh(fd, asked, hex);
	else if (sscanf(line, "freeze %lld", &asked) == 1)
		answer(fd, asked, hold_programs(), "frozen");
	else if (sscanf(line, "thaw %lld", &asked) == 1)
		answer(fd, asked, release_programs(), "thawed");
}

static bool handle_message(int fd)
{
	bool assigned = false;
	if (message_state() == MESSAGE_WHOLE && message_kind() == MESSAGE_ASSIGN)
		assigned = assign_machine(fd);
	else if (message_state() == MESSAGE_WHOLE && message_kind() == MESSAGE_RENEW)
		renew_machine(fd);
	else
		dprintf(fd, "failed message %s\n", strerror(EPROTO));
	message_end();
	return assigned;
}

/* Handles the first request of the data and returns its size; 0 if the rest of it is to come. */
static size_t handle_first(int fd, char *data, size_t size, bool *assigned)
{
	if (message_state() == MESSAGE_PART || message_begins(data, size)) {
		size_t taken = message_take(data, size);
		if (message_state() != MESSAGE_PART)
			*assigned = handle_message(fd) || *assigned;
		return taken;
	}
	char *end = memchr(data, '\n', size);
	if (!end)
		return size == READ_SIZE ? size : 0; /* longer than any valid request */
	*end = 0;
	handle_request(fd, data);
	return (size_t)(end + 1 - data);
}

/* NOTHING_READ: a port without a host at its other end polls as readable and has nothing. */
enum handled handle_requests(int fd)
{
	static char data[READ_SIZE];
	static size_t used;
	enum handled handled = NOTHING_READ;
	bool assigned = false;
	ssize_t got;
	size_t size;
	message_drop_late();
	while ((got = read(fd, data + used, READ_SIZE - used)) > 0) {
		used += (size_t)got;
		handled = HANDLED;
		while (used && (size = handle_first(fd, data, used, &assigned))) {
			used -= size;
			memmove(data, data + size, used);
		}
	}
	return assigned ? ASSIGNED : handled;
}
