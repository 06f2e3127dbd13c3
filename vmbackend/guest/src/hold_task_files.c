#define _GNU_SOURCE
#include "hold_task_files.h"

#include "guest.h"
#include "hold_state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ID_FILE "last-id"
#define NEW_RECORD "new"
#define IDS_AT_ONCE 1000 /* that are written down before the first of them is given away */
#define NAME_SIZE 64

static int folder = -1;
static uint64_t last_id, reserved_id;

/* Also where the disk was full before. */
bool task_files_open(void)
{
	if (folder >= 0)
		return true;
	mkdir(task_folder(), 0700);
	folder = open(task_folder(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int fd = folder < 0 ? -1 : openat(folder, ID_FILE, O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && read(fd, &last_id, sizeof last_id) != sizeof last_id)
		last_id = 0;
	reserved_id = last_id;
	if (fd >= 0)
		close(fd);
	return folder >= 0;
}

/* Durable before an id of them is used: also after a loss of power none is given twice. */
static bool reserve_ids(void)
{
	uint64_t until = last_id + IDS_AT_ONCE;
	int fd = openat(folder, ID_FILE, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	bool done = fd >= 0 && pwrite(fd, &until, sizeof until, 0) == sizeof until && !fsync(fd) && !fsync(folder);
	int failure = errno;
	if (fd >= 0)
		close(fd);
	errno = failure;
	if (done)
		reserved_id = until;
	return done;
}

uint64_t task_id_take(void)
{
	if (!task_files_open() || (last_id == reserved_id && !reserve_ids()))
		return 0;
	return ++last_id;
}

static void name_file(char name[NAME_SIZE], uint64_t task, const uint64_t *start)
{
	if (start)
		snprintf(name, NAME_SIZE, "l%" PRIu64 "-%" PRIu64, task, *start);
	else
		snprintf(name, NAME_SIZE, "r%" PRIu64, task);
}

int task_file_open(uint64_t task, const uint64_t *start, int flags)
{
	char name[NAME_SIZE];
	name_file(name, task, start);
	return openat(folder, name, flags | O_CLOEXEC, 0600);
}

off_t task_file_size(uint64_t task, const uint64_t *start)
{
	char name[NAME_SIZE];
	struct stat info;
	name_file(name, task, start);
	return fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) ? -1 : info.st_size;
}

void task_file_remove(uint64_t task, const uint64_t *start)
{
	char name[NAME_SIZE];
	name_file(name, task, start);
	unlinkat(folder, name, 0);
}

bool task_record_write(uint64_t task, const uint8_t *data, size_t size)
{
	char name[NAME_SIZE];
	name_file(name, task, NULL);
	int fd = openat(folder, NEW_RECORD, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	bool done = fd >= 0 && write(fd, data, size) == (ssize_t)size && !renameat(folder, NEW_RECORD, folder, name);
	if (fd >= 0)
		close(fd);
	return done;
}

static void handle_file(const char *name, void (*found)(uint64_t task, const uint64_t *start))
{
	uint64_t task, start;
	char end;
	if (sscanf(name, "r%" SCNu64 "%c", &task, &end) == 1)
		found(task, NULL);
	else if (sscanf(name, "l%" SCNu64 "-%" SCNu64 "%c", &task, &start, &end) == 2)
		found(task, &start);
	else if (strcmp(name, ID_FILE))
		unlinkat(folder, name, 0);
}

void task_files_each(void (*found)(uint64_t task, const uint64_t *start))
{
	struct dirent *entry;
	int fd = folder < 0 ? -1 : openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *entries = fd < 0 ? NULL : fdopendir(fd);
	while (entries && (entry = readdir(entries)))
		if (entry->d_name[0] != '.')
			handle_file(entry->d_name, found);
	if (entries)
		closedir(entries);
}
