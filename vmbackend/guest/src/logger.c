/* Logs inside the machine: output of the main program and the workloads, each in a file of bounded size.
 *
 * svlogd is not used: it needs a directory of its own, stops reading when it cannot write, and on SIGTERM leaves what
 * the pipe still holds unread. A workload's log is a plain file at a path of its owner's choice, no state of that file may
 * block the workload, and the last output before a power-off must not be lost.
 */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_DIR "/var/log/workspace"
#define LOG_BYTES 1000000
#define OLD_LOGS 3
#define REOPEN_MS 1000
#define PATH_SIZE (PATH_MAX + 8)

static void make_parents(const char *path)
{
	char folder[PATH_MAX];
	snprintf(folder, sizeof folder, "%s", path);
	for (char *slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = 0;
		mkdir(folder, 0755);
		*slash = '/';
	}
}

static void log_name(const char *path, int age, char *name)
{
	if (age)
		snprintf(name, PATH_SIZE, "%s.%d", path, age);
	else
		snprintf(name, PATH_SIZE, "%s", path);
}

/* Runs as root in a directory that the workload's user may own: links are not followed. */
static int open_own(const char *path, int flags)
{
	struct stat info;
	int fd = open(path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | flags, 0644);
	if (fd >= 0 && (fstat(fd, &info) || (S_ISREG(info.st_mode) && info.st_nlink > 1))) {
		close(fd);
		return -1;
	}
	return fd;
}

static void empty(const char *path)
{
	struct stat info;
	int fd = open_own(path, 0);
	if (fd >= 0 && !fstat(fd, &info) && S_ISREG(info.st_mode))
		(void)!ftruncate(fd, 0);
	close(fd);
}

static void rotate(const char *path)
{
	char from[PATH_SIZE], to[PATH_SIZE];
	for (int age = OLD_LOGS; age > 0; age--) {
		log_name(path, age - 1, from);
		log_name(path, age, to);
		/* A file that cannot be renamed is truncated, so that the size limit holds in any case. */
		if (rename(from, to) && errno != ENOENT)
			empty(from);
	}
}

/* The open log with space for SIZE bytes, or -1. Anything but a regular file (/dev/null) is unlimited and never rotated. */
static int open_log(const char *path, int fd, size_t size)
{
	struct stat info;
	if (fd >= 0 && (fstat(fd, &info) || (S_ISREG(info.st_mode) && !info.st_nlink))) {
		close(fd); /* removed while it was open */
		fd = -1;
	}
	if (fd >= 0 && S_ISREG(info.st_mode) && info.st_size && info.st_size + (off_t)size > LOG_BYTES) {
		close(fd);
		rotate(path);
		fd = -1;
	}
	if (fd >= 0)
		return fd;
	make_parents(path);
	return open_own(path, O_APPEND | O_CREAT);
}

/* Output that cannot be written (disk full, directory removed) is dropped; the workload continues. */
static void write_log(const char *path)
{
	static char block[65536];
	int fd = -1;
	long long retry = 0;
	for (;;) {
		ssize_t got = read(STDIN_FILENO, block, sizeof block), put;
		if (got <= 0)
			return;
		if (fd < 0 && now_ms() < retry)
			continue;
		fd = open_log(path, fd, (size_t)got);
		retry = now_ms() + REOPEN_MS;
		for (ssize_t done = 0; fd >= 0 && done < got; done += put)
			if ((put = write(fd, block + done, (size_t)(got - done))) <= 0)
				break;
	}
}

static const char *log_path(const char *name)
{
	static char made[sizeof LOG_DIR + SERVICE_NAME_SIZE + 8];
	snprintf(made, sizeof made, LOG_DIR "/%s.log", name);
	return workload_get(name, "log", made);
}

static int run_logger(const char *path)
{
	set_oom("0");
	/* On power-off the pipe still holds the last output; the logger exits at the end of its input. */
	signal(SIGTERM, SIG_IGN);
	write_file(LOG_READING, "", 0, 0600);
	enter_guest();
	write_log(path);
	return 0;
}

int log_main(void)
{
	return run_logger(LOG_DIR "/cmd.log");
}

int workload_log_main(void)
{
	const char *name = workload_name(true);
	config_load(CONFIG_FILE);
	return run_logger(log_path(name));
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *place)
{
	(void)info, (void)kind;
	if (place->level)
		remove(path);
	return 0;
}

void remove_logs(void)
{
	char name[PATH_SIZE];
	struct stat info;
	size_t position = 0;
	const char *workload;
	nftw(LOG_DIR, remove_entry, 16, FTW_DEPTH | FTW_PHYS); /* without FTW_MOUNT: files and directories of an overlay differ in st_dev */
	while ((workload = config_next("workload", &position)))
		for (int age = 0; age <= OLD_LOGS; age++) {
			log_name(log_path(workload), age, name);
			if (!lstat(name, &info) && S_ISREG(info.st_mode))
				unlink(name);
		}
}
