#define _GNU_SOURCE
#include "guest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

void die(int code, const char *format, ...)
{
	char line[512];
	va_list args;
	va_start(args, format);
	vsnprintf(line, sizeof line, format, args);
	va_end(args);
	dprintf(STDERR_FILENO, "guest: %s\n", line);
	_exit(code);
}

int shorter_wait(int one, int other)
{
	return one < 0 || (other >= 0 && other < one) ? other : one;
}

char *read_file(const char *path, size_t *size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	size_t used = 0, capacity = 4096;
	char *data = malloc(capacity + 1);
	ssize_t got;
	/* Sizes of files in /proc and /sys are wrong: read to the end. */
	while (data && (got = read(fd, data + used, capacity - used)) > 0) {
		used += (size_t)got;
		if (used == capacity)
			data = realloc(data, (capacity *= 2) + 1);
	}
	close(fd);
	if (!data)
		return NULL;
	data[used] = 0;
	if (size)
		*size = used;
	return data;
}

bool write_file(const char *path, const char *data, size_t size, mode_t mode)
{
	/* A symlink in the image is replaced, never followed. */
	if (unlink(path) && errno != ENOENT)
		return false;
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
	if (fd < 0)
		return false;
	bool whole = write(fd, data, size) == (ssize_t)size;
	fchmod(fd, mode);
	return !close(fd) && whole;
}

bool write_value(const char *path, const char *value)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	bool whole = write(fd, value, strlen(value)) == (ssize_t)strlen(value);
	close(fd);
	return whole;
}

bool ensure_dir(const char *path, mode_t mode)
{
	struct stat info;
	if (!stat(path, &info) && S_ISDIR(info.st_mode))
		return true;
	unlink(path);
	return !mkdir(path, mode) && !chmod(path, mode);
}

void sleep_ms(long milliseconds)
{
	struct timespec rest = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
	while (nanosleep(&rest, &rest) && errno == EINTR)
		;
}

static long long read_clock(clockid_t clock)
{
	struct timespec now;
	clock_gettime(clock, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

long long now_ms(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

long long clock_ms(void)
{
	return read_clock(CLOCK_REALTIME);
}

int make_node(const char *sys_dir, const char *name, mode_t type)
{
	char path[512];
	unsigned major, minor;
	snprintf(path, sizeof path, "%s/%s/dev", sys_dir, name);
	char *text = read_file(path, NULL);
	int fields = text ? sscanf(text, "%u:%u", &major, &minor) : 0;
	free(text);
	if (fields != 2)
		return -1;
	snprintf(path, sizeof path, "/dev/%s", name);
	return mknod(path, type | 0600, makedev(major, minor)) && errno != EEXIST ? -1 : 0;
}

int find_port(const char *wanted, char *name, size_t size)
{
	DIR *ports = opendir("/sys/class/virtio-ports");
	struct dirent *entry;
	int found = -1;
	while (ports && found && (entry = readdir(ports))) {
		char path[512];
		snprintf(path, sizeof path, "/sys/class/virtio-ports/%s/name", entry->d_name);
		char *text = entry->d_name[0] == '.' ? NULL : read_file(path, NULL);
		if (text && !strncmp(text, wanted, strlen(wanted)) && text[strlen(wanted)] == '\n') {
			snprintf(name, size, "%s", entry->d_name);
			found = make_node("/sys/class/virtio-ports", name, S_IFCHR);
		}
		free(text);
	}
	if (ports)
		closedir(ports);
	return found;
}

char *read_input(size_t *size)
{
	char *data = malloc(CONFIG_MAX + 1);
	ssize_t got = 0;
	*size = 0;
	while (data && *size <= CONFIG_MAX && (got = read(STDIN_FILENO, data + *size, CONFIG_MAX + 1 - *size)) > 0)
		*size += (size_t)got;
	if (!data || got < 0 || *size > CONFIG_MAX)
		die(EXIT_CANNOT_RUN, "cannot read the input");
	return data;
}

/* Needs no /proc, which a user may have unmounted. */
pid_t enter_kit(void)
{
	char *text = read_file(STAGE_FILE, NULL);
	pid_t stage = text ? atoi(text) : 0;
	free(text);
	int fd = stage ? (int)syscall(SYS_pidfd_open, stage, 0) : -1;
	if (fd < 0 || setns(fd, CLONE_NEWNS) || chdir("/"))
		die(EXIT_CANNOT_RUN, "cannot reach the kit: %s", strerror(errno));
	close(fd);
	return stage;
}

void enter_guest(void)
{
	int fd = open("/proc/1/ns/mnt", O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNS) || chdir("/"))
		die(EXIT_CANNOT_RUN, "cannot enter the machine's file system: %s", strerror(errno));
	close(fd);
}

int open_guest_root(void)
{
	return open("/proc/1/root", O_PATH | O_DIRECTORY | O_CLOEXEC);
}

void set_oom(const char *adjustment)
{
	write_value("/proc/self/oom_score_adj", adjustment);
}
