/* Removes partial files as a machine does at its start, with the folder ARGV[1] in place of the machine, and
 * ends in order. With a second argument the process that searches is killed. */
#define _GNU_SOURCE
#include "guest.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static bool killed;

void enter_guest(void)
{
}

void set_oom(const char *adjustment)
{
	(void)adjustment;
	if (killed)
		raise(SIGKILL);
}

bool write_file(const char *path, const char *data, size_t size, mode_t mode)
{
	(void)path, (void)data, (void)size, (void)mode;
	return false;
}

/* Between the reading of an entry and its use: removes `vanishing*`, and makes `swapped*` a link to /outside. */
struct dirent *__real_readdir(DIR *entries);
struct dirent *__wrap_readdir(DIR *entries);
struct dirent *__wrap_readdir(DIR *entries)
{
	struct dirent *entry = __real_readdir(entries);
	bool swapped = entry && !strncmp(entry->d_name, "swapped", strlen("swapped"));
	bool vanishing = entry && !strncmp(entry->d_name, "vanishing", strlen("vanishing"));
	if (swapped || vanishing)
		unlinkat(dirfd(entries), entry->d_name, entry->d_type == DT_DIR ? AT_REMOVEDIR : 0);
	if (swapped)
		symlinkat("/outside", dirfd(entries), entry->d_name);
	return entry;
}

int main(int argc, char **argv)
{
	int status;
	if (argc < 2 || chroot(argv[1]) || chdir("/")) {
		perror("partials_main");
		return 2;
	}
	killed = argc > 2;
	remove_partials();
	if (wait(&status) < 0)
		return 1;
	mark_ended();
	return WIFSIGNALED(status) != killed;
}
