/* The guest's part of benchmarks/fork_guests.py: changes so many MiB of its memory, then writes its clock in
 * microseconds, a line every 5 ms, until nobody reads it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int main(int argc, char **argv)
{
	size_t size = (size_t)atol(argc > 1 ? argv[1] : "0") << 20;
	char *memory = malloc(size);
	const struct timespec pause = {0, 5000000};
	struct timespec now;

	if (!memory)
		return 1;
	memset(memory, (int)time(NULL) | 1, size); /* never zeros, which no snapshot would write */
	do {
		clock_gettime(CLOCK_MONOTONIC, &now);
		printf("%lld\n", now.tv_sec * 1000000LL + now.tv_nsec / 1000);
		nanosleep(&pause, NULL);
	} while (fflush(stdout) == 0 && memory[size / 2]);
	return 0;
}
