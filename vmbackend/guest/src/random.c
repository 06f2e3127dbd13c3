#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define POOL_BYTES 512
#define ADD_ENTROPY _IOW('R', 0x03, int[2]) /* RNDADDENTROPY of linux/random.h */
#define RESEED _IO('R', 0x07)               /* RNDRESEEDCRNG */

struct seed { /* struct rand_pool_info */
	int bits, size;
	uint8_t bytes[POOL_BYTES];
};

static bool feed(struct seed *seed, bool reseed)
{
	int pool = open("/dev/random", O_WRONLY | O_CLOEXEC);
	seed->bits = seed->size * 8;
	bool fed = pool >= 0 && !ioctl(pool, ADD_ENTROPY, seed) && (!reseed || !ioctl(pool, RESEED));
	int failure = errno;
	close(pool);
	errno = failure;
	return fed;
}

/* Without this the first getrandom of an emulated machine waits up to a second for timing jitter. */
void seed_random(void)
{
	struct seed seed = {.size = 64};
	int source = open("/dev/hwrng", O_RDONLY | O_CLOEXEC);
	if (source >= 0 && read(source, seed.bytes, (size_t)seed.size) == seed.size)
		feed(&seed, false);
	close(source);
}

/* With a time (nanoseconds since the epoch) the clock is stepped to it first: one process for both, as a waking machine
 * takes its time to start one. A machine woken twice from one memory would draw the same numbers twice. Fed bytes reach what programs draw only at
 * the kernel's next own reseeding, up to a minute later, unless that is asked for. */
int reseed_main(const char *now)
{
	long long nanoseconds = now ? strtoll(now, NULL, 10) : 0;
	struct timespec time = {.tv_sec = nanoseconds / 1000000000, .tv_nsec = nanoseconds % 1000000000};
	if (nanoseconds > 0 && clock_settime(CLOCK_REALTIME, &time))
		die(EXIT_CANNOT_RUN, "cannot set the clock: %s", strerror(errno));
	struct seed seed = {0};
	ssize_t got = 0;
	while (seed.size < POOL_BYTES &&
	       (got = read(STDIN_FILENO, seed.bytes + seed.size, (size_t)(POOL_BYTES - seed.size))) > 0)
		seed.size += (int)got;
	if (got < 0 || !seed.size)
		die(EXIT_CANNOT_RUN, "no seed on the standard input");
	if (!feed(&seed, true))
		die(EXIT_CANNOT_RUN, "cannot reseed: %s", strerror(errno));
	return 0;
}
