/* Counts in memory and in a file, the file first, until the memory of the machine was loaded as another one's, or SIGTERM.
 *
 *   counter FILE     then prints: the number in memory, the last one in the file, and what is wrong with the file, or `right`
 *   counter          counts in memory alone, and then prints the number
 *
 * Once its next generation ends it, it says `begun` on its error output.
 *
 * The file is a ring of blocks that bypass the cache, so that it is the disk which is read. Before each number is written its
 * block is read: it has the number of one round before, unless the disk is of a later instant than the memory.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK 4096
#define BLOCKS 512
#define GENERATION "/run/kit/generation"

static _Alignas(BLOCK) uint64_t block[BLOCK / sizeof(uint64_t)];
static volatile uint64_t memory;
static volatile sig_atomic_t ended;
static char generation[64];

static void end(int number)
{
	(void)number;
	ended = 1;
}

static int fail(const char *what)
{
	perror(what);
	exit(1);
}

static void read_generation(char *to)
{
	int fd = open(GENERATION, O_RDONLY);
	memset(to, 0, sizeof generation);
	if (fd < 0 || read(fd, to, sizeof generation - 1) < 0)
		fail(GENERATION);
	close(fd);
}

static int is_loaded(void)
{
	char now[sizeof generation];
	read_generation(now);
	return memcmp(now, generation, sizeof generation);
}

static uint64_t number_at(int fd, uint64_t place)
{
	if (pread(fd, block, BLOCK, (off_t)(place % BLOCKS * BLOCK)) != BLOCK)
		fail("read");
	return block[0];
}

static void write_number(int fd, uint64_t number)
{
	block[0] = block[BLOCK / sizeof *block - 1] = number;
	if (pwrite(fd, block, BLOCK, (off_t)(number % BLOCKS * BLOCK)) != BLOCK)
		fail("write");
}

static uint64_t last_of(int fd)
{
	uint64_t last = 0;
	for (uint64_t place = 0; place < BLOCKS; place++)
		if (number_at(fd, place) > last)
			last = block[0];
	return last;
}

/* All of the last round are there. */
static void report(int fd)
{
	uint64_t last = last_of(fd);
	printf("%llu %llu ", (unsigned long long)memory, (unsigned long long)last);
	for (uint64_t number = last - BLOCKS + 1; number <= last; number++)
		if (number_at(fd, number) != number || block[BLOCK / sizeof *block - 1] != number) {
			printf("%llu where %llu was written\n", (unsigned long long)block[0], (unsigned long long)number);
			return;
		}
	printf("right\n");
}

int main(int argc, char **argv)
{
	int fd = argc == 2 ? open(argv[1], O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600) : -1;
	if (argc == 2 && fd < 0)
		fail("open");
	signal(SIGTERM, end);
	read_generation(generation);
	fprintf(stderr, "begun\n");
	if (argc == 1) {
		while (!ended && !is_loaded())
			memory++;
		printf("%llu\n", (unsigned long long)memory);
		return 0;
	}
	for (uint64_t number = 1; number <= BLOCKS; number++) {
		write_number(fd, number);
		memory = number;
	}
	fsync(fd);
	while (!ended && !is_loaded()) {
		uint64_t number = memory + 1, before = number_at(fd, number);
		if (before != number - BLOCKS) {
			printf("%llu: the file has %llu already\n", (unsigned long long)memory, (unsigned long long)before);
			return 1;
		}
		write_number(fd, number);
		memory = number;
	}
	report(fd);
	return 0;
}
