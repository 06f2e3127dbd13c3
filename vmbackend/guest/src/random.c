#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define POOL_BYTES 512
#define ADD_ENTROPY _IOW('R', 0x03, int[2]) /* RNDADDENTROPY of linux/random.h */
#define RESEED _IO('R', 0x07)               /* RNDRESEEDCRNG */

struct seed { /* struct rand_pool_info */
	int bits, size;
	uint8_t bytes[POOL_BYTES];
};

static bool add_entropy(struct seed *seed, bool reseed)
{
	int pool = open("/dev/random", O_WRONLY | O_CLOEXEC);
	seed->bits = seed->size * 8;
	bool added = pool >= 0 && !ioctl(pool, ADD_ENTROPY, seed) && (!reseed || !ioctl(pool, RESEED));
	int failure = errno;
	close(pool);
	errno = failure;
	return added;
}

/* Without this the first getrandom of an emulated machine waits up to a second for timing jitter. */
void seed_random(void)
{
	struct seed seed = {.size = 64};
	int source = open("/dev/hwrng", O_RDONLY | O_CLOEXEC);
	if (source >= 0 && read(source, seed.bytes, (size_t)seed.size) == seed.size)
		add_entropy(&seed, false);
	close(source);
}

/* Two machines restored from one saved memory would draw the same numbers. Added entropy reaches user space only with the
 * kernel's next reseeding, up to a minute later, unless that is requested. */
bool reseed_random(const char *hex)
{
	struct seed seed = {0};
	unsigned byte;
	while (seed.size < POOL_BYTES && sscanf(hex + 2 * seed.size, "%2x", &byte) == 1)
		seed.bytes[seed.size++] = (uint8_t)byte;
	errno = EINVAL;
	return seed.size && add_entropy(&seed, true);
}
