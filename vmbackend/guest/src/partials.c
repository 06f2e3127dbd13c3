/* Partial files of writes that were cut off by the death of the machine.
 *
 * The control plane writes a file beside its target and renames it. While the machine lives, the shell of the file server
 * removes what a broken transfer left (vmbackend/guest/sftp.py). What a machine that died left is found at its next start:
 * a mark on the writable disk says that it did not end in order, and only then the disk is searched. The mark stays until
 * a search has come to its end.
 *
 * Transfers of this run go on beside the search. Their partial files are tracked: the control plane makes a link in memory
 * before it makes the file, and removes it after the file was renamed or removed (tracked_partial in sftp.py). Times do not
 * tell the runs apart: a clock starts with whole seconds, and it may run backwards between two starts.
 */
#define _GNU_SOURCE
#include "guest.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define RUNNING KIT "/data/running"
#define UPPER KIT "/data/upper"
#define TRACKING "/dev/shm" /* KitPaths.tracking of commands.py */
#define CHANNEL ".files-"   /* begins the name of the folder of links of one channel, see sftp.py */
#define MAX_DEPTH (PATH_MAX / 2) /* the control plane writes by absolute paths: no partial file is deeper */
#define MAX_FILES (MAX_DEPTH + 64) /* one descriptor for each level */
#define DIRECTORY (O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

struct level {
	const struct level *above; /* NULL for the root */
	const char *name;
};

void mark_running(void)
{
	int fd = open(RUNNING, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		write_file(UNCLEAN_FILE, "", 0, 0600);
	close(fd);
}

void mark_ended(void)
{
	if (access(UNCLEAN_FILE, F_OK))
		unlink(RUNNING);
}

/* The directory in the root of the machine, or -1. Programs of the user run: any directory of the path may have been
 * replaced since it was read, and a link in its place leads elsewhere. */
static int open_merged(const struct level *level)
{
	if (!level->above)
		return open("/", O_PATH | DIRECTORY);
	int above = open_merged(level->above);
	if (above < 0)
		return -1;
	int fd = openat(above, level->name, O_PATH | DIRECTORY);
	close(above);
	return fd;
}

static bool in_channel(int tracking, const char *channel, const char *link)
{
	struct stat info;
	int fd = strncmp(channel, CHANNEL, strlen(CHANNEL)) ? -1 : openat(tracking, channel, O_PATH | DIRECTORY);
	bool found = fd >= 0 && !fstatat(fd, link, &info, AT_SYMLINK_NOFOLLOW);
	close(fd);
	return found;
}

/* A transfer of this run writes the file. Its link has the file's name without the point. */
static bool is_tracked(const char *name)
{
	bool found = false;
	struct dirent *entry;
	DIR *tracking = opendir(TRACKING);
	if (!tracking)
		return false;
	while (!found && (entry = readdir(tracking)))
		found = in_channel(dirfd(tracking), entry->d_name, name + 1);
	closedir(tracking);
	return found;
}

/* The upper layer has the same paths as the root of the machine, through which the file is removed.
 * The file is looked at before its link: if a transfer ends in between, nothing has the name any more. */
static void remove_partial(const struct level *level, const char *name)
{
	struct stat info;
	int fd = open_merged(level);
	if (fd < 0)
		return;
	if (!fstatat(fd, name, &info, AT_SYMLINK_NOFOLLOW) && S_ISREG(info.st_mode) && !is_tracked(name))
		unlinkat(fd, name, 0);
	close(fd);
}

/* Searches the directory FD, which it closes. What is gone by then or cannot be opened is passed over. */
static void search_directory(int fd, const struct level *level, int depth)
{
	DIR *entries = fdopendir(fd);
	struct dirent *entry;
	if (!entries) {
		close(fd);
		return;
	}
	while ((entry = readdir(entries))) {
		const char *name = entry->d_name;
		if (!strcmp(name, ".") || !strcmp(name, ".."))
			continue;
		if (is_partial(name))
			remove_partial(level, name);
		if (depth == MAX_DEPTH || (entry->d_type != DT_DIR && entry->d_type != DT_UNKNOWN))
			continue;
		int below = openat(fd, name, O_RDONLY | DIRECTORY);
		if (below >= 0)
			search_directory(below, &(struct level){level, name}, depth + 1);
	}
	closedir(entries);
}

static void start_search(void)
{
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setsid();
	setpriority(PRIO_PROCESS, 0, LOWEST_PRIORITY);
	setrlimit(RLIMIT_NOFILE, &(struct rlimit){MAX_FILES, MAX_FILES});
	set_oom("1000");
}

void remove_partials(void)
{
	if (access(UNCLEAN_FILE, F_OK) || fork())
		return;
	start_search();
	/* Opened in the kit's namespace, in which the user's mounts do not appear. */
	int kit = open(KIT, O_PATH | DIRECTORY), upper = open(UPPER, O_RDONLY | DIRECTORY);
	enter_guest();
	if (upper >= 0)
		search_directory(upper, &(struct level){NULL, "/"}, 0);
	unlinkat(kit, &UNCLEAN_FILE[strlen(KIT "/")], 0);
	_exit(0);
}
