/* Freezing of everything that is the user's: the groups of the kit's commands, terminals and services, and those that programs
 * made beside them. The kit's own processes are in the root group, which cannot be frozen.
 *
 * Programs stay frozen in memory that is saved: a copy of it thaws them once it has its own identity. The host asks for a
 * freeze and a thaw of the machine itself, too; if it dies in between, they go on by themselves. */
#define _GNU_SOURCE
#include "guest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FREEZE_MS 5000
#define HELD_MS 10000 /* longer than the host needs for the end of saved memory */
#define MAX_GROUPS 256
#define NAME_SIZE 256

static char frozen[MAX_GROUPS][NAME_SIZE];
static size_t frozen_count;
static long long held_until; /* 0: not held for the host */

static bool read_events(int root, const char *group, char *text, size_t size)
{
	char path[NAME_SIZE + 32];
	snprintf(path, sizeof path, "%s/cgroup.events", group);
	int fd = openat(root, path, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : read(fd, text, size - 1);
	if (fd >= 0)
		close(fd);
	text[got > 0 ? got : 0] = 0;
	return got > 0;
}

static bool set_frozen(int root, const char *group, const char *value)
{
	char path[NAME_SIZE + 32];
	snprintf(path, sizeof path, "%s/cgroup.freeze", group);
	int fd = openat(root, path, O_WRONLY | O_CLOEXEC);
	bool set = fd >= 0 && write(fd, value, 1) == 1;
	if (fd >= 0)
		close(fd);
	return set;
}

/* One that its owner froze stays as it is, now and later. */
static bool begin_freezing(int root, const char *group)
{
	char events[128];
	if (!read_events(root, group, events, sizeof events) || strstr(events, "frozen 1"))
		return true;
	errno = E2BIG;
	if (frozen_count == MAX_GROUPS || strlen(group) >= NAME_SIZE || !set_frozen(root, group, "1"))
		return false;
	strcpy(frozen[frozen_count++], group);
	return true;
}

static bool begin_all(int root)
{
	int folder = openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *groups = folder < 0 ? NULL : fdopendir(folder);
	struct dirent *entry;
	bool begun = groups;
	while (begun && (entry = readdir(groups)))
		if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
			begun = begin_freezing(root, entry->d_name);
	int failure = errno;
	if (groups)
		closedir(groups);
	errno = failure;
	return begun;
}

/* A group counts as frozen without processes, too. */
static bool await_frozen(int root, const char *group, long long until)
{
	char events[128];
	while (read_events(root, group, events, sizeof events) && !strstr(events, "frozen 1")) {
		errno = ETIMEDOUT;
		if (now_ms() > until)
			return false;
		sleep_ms(1);
	}
	return true;
}

/* Those that are frozen already stay so; new groups are added. */
bool freeze_programs(void)
{
	int root = cgroup_root();
	long long until = now_ms() + FREEZE_MS;
	bool done = root >= 0 && begin_all(root);
	for (size_t i = 0; done && i < frozen_count; i++)
		done = await_frozen(root, frozen[i], until);
	return done;
}

void thaw_programs(void)
{
	for (size_t i = 0; i < frozen_count; i++)
		set_frozen(cgroup_root(), frozen[i], "0");
	frozen_count = 0;
	held_until = 0;
}

bool hold_programs(void)
{
	bool held = freeze_programs();
	int failure = errno;
	if (held)
		held_until = now_ms() + HELD_MS;
	else
		thaw_programs();
	errno = failure;
	return held;
}

bool release_programs(void)
{
	bool held = held_until;
	thaw_programs();
	errno = ETIMEDOUT;
	return held;
}

int programs_release_late(void)
{
	long long now = now_ms();
	if (held_until && now >= held_until)
		thaw_programs();
	return held_until ? (int)(held_until - now) : -1;
}
