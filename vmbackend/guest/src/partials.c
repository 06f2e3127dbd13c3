/* Partial files of writes that were cut off by the death of the machine.
 *
 * The control plane writes a file beside its target and renames it. While the machine lives, the shell of the file server
 * removes what a broken transfer left (vmbackend/guest/sftp.py). What a machine that died left is found at its next start:
 * a mark on the writable disk says that it did not end in order, and only then the disk is searched.
 */
#define _GNU_SOURCE
#include "guest.h"

#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define RUNNING KIT "/data/running"
#define UPPER KIT "/data/upper"
#define PREFIX ".partial-"
#define DIGITS 16

static time_t started; /* a younger file may belong to a transfer of this run */

void mark_running(void)
{
	int fd = open(RUNNING, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		write_file(UNCLEAN_FILE, "", 0, 0600);
	close(fd);
}

void mark_ended(void)
{
	unlink(RUNNING);
}

static bool is_partial(const char *name)
{
	return !strncmp(name, PREFIX, strlen(PREFIX)) && strlen(name) == strlen(PREFIX) + DIGITS &&
	       strspn(name + strlen(PREFIX), "0123456789abcdef") == DIGITS;
}

/* The upper layer has the same paths as the root of the machine, through which the file is removed. */
static int remove_partial(const char *path, const struct stat *info, int kind, struct FTW *place)
{
	if (kind == FTW_F && S_ISREG(info->st_mode) && info->st_ctime < started && is_partial(path + place->base))
		unlink(path + strlen(UPPER));
	return 0;
}

void remove_partials(void)
{
	struct stat info;
	if (stat(UNCLEAN_FILE, &info))
		return;
	started = info.st_mtime;
	if (fork())
		return;
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setsid();
	setpriority(PRIO_PROCESS, 0, LOWEST_PRIORITY);
	set_oom("1000");
	enter_guest();
	nftw(UPPER, remove_partial, 16, FTW_PHYS | FTW_MOUNT);
	_exit(0);
}
