/* A log file of bounded size with its rotated older files. */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_BYTES 1000000
#define REOPEN_MS 1000

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

void log_name(const char *path, int age, char *name)
{
	if (age)
		snprintf(name, LOG_NAME_SIZE, "%s.%d", path, age);
	else
		snprintf(name, LOG_NAME_SIZE, "%s", path);
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
	char from[LOG_NAME_SIZE], to[LOG_NAME_SIZE];
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

void log_append(struct log_file *log, const char *data, size_t size)
{
	ssize_t put;
	if (log->fd < 0 && now_ms() < log->retry)
		return;
	log->fd = open_log(log->path, log->fd, size);
	log->retry = now_ms() + REOPEN_MS;
	for (size_t done = 0; log->fd >= 0 && done < size; done += (size_t)put) {
		if (log->cut && write(log->fd, "\n", 1) == 1)
			log->cut = false; /* the next record begins a line */
		put = write(log->fd, data + done, size - done);
		if (put <= 0) {
			log->cut = log->stamped && (done || log->cut);
			return;
		}
	}
}
