/* Empties the folder ARGV[1] as the guest does with its logs, with as few descriptors as ARGV[2] says. */
#define _GNU_SOURCE
#include "guest.h"

#include <stdlib.h>
#include <sys/resource.h>

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	rlim_t files = (rlim_t)atoi(argv[2]);
	setrlimit(RLIMIT_NOFILE, &(struct rlimit){files, files});
	empty_folder(argv[1]);
	return 0;
}
