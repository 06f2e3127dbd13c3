/* A cgroup for each command and terminal, so that all of its processes can be killed, in whatever session they are, and for the
 * services, so that everything of the user's can be frozen.
 *
 * The groups are folders of `kit` in the machine's cgroup2 hierarchy and have no controllers. A command's processes that
 * live on after it keep its group, as do those that were killed until the kernel has ended them; a later sweep removes it.
 */
#define _GNU_SOURCE
#include "guest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#define PARENT "kit"
#define MAGIC 0x63677270 /* CGROUP2_SUPER_MAGIC */
#define FOLDER (O_RDONLY | O_DIRECTORY | O_CLOEXEC)
#define INTO_CGROUP 0x200000000ULL
#define MAX_NAMES 64 /* processes that live on may hold groups of former processes with the same id */
#define NAME_SIZE 64
#define MAX_DEPTH 16 /* of groups that a command made inside its own */
#define OUTLIVES 0700 /* the mode of a group that outlives its process; the kernel does not let groups be renamed */

struct clone_arguments { /* struct clone_args of linux/sched.h, version 2 */
	uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup;
};

static int root = -1, parent = -1;

/* Called in the kit's mount namespace where possible: the user may have unmounted the hierarchy in theirs. */
void cgroup_prepare(void)
{
	static const char *const places[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
	struct statfs info;
	for (size_t i = 0; parent < 0 && i < sizeof places / sizeof *places; i++) {
		int found = open(places[i], FOLDER);
		if (found >= 0 && !fstatfs(found, &info) && (unsigned long)info.f_type == MAGIC) {
			mkdirat(found, PARENT, 0755);
			parent = openat(found, PARENT, FOLDER);
			root = found;
		} else if (found >= 0) {
			close(found);
		}
	}
}

int cgroup_root(void)
{
	cgroup_prepare();
	return root;
}

int cgroup_create(char kind)
{
	static unsigned last; /* a process that makes many groups leaves some to processes that live on */
	char name[NAME_SIZE];
	cgroup_prepare();
	for (int i = 0; parent >= 0 && i < MAX_NAMES; i++) {
		snprintf(name, sizeof name, "%c-%d-%u", kind, (int)getpid(), last++);
		if (!mkdirat(parent, name, 0755))
			return openat(parent, name, FOLDER);
		if (errno != EEXIST)
			break;
	}
	return -1;
}

pid_t cgroup_fork(int cgroup)
{
	struct clone_arguments arguments = {.flags = INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (uint64_t)cgroup};
	/* A move into a group waits for a grace period of the kernel, 10 ms and more; a start in it does not. */
	long child = cgroup < 0 ? -1 : syscall(SYS_clone3, &arguments, sizeof arguments);
	return child < 0 ? fork() : (pid_t)child;
}

bool cgroup_kill(int cgroup)
{
	int fd = cgroup < 0 ? -1 : openat(cgroup, "cgroup.kill", O_WRONLY | O_CLOEXEC);
	bool killed = fd >= 0 && write(fd, "1", 1) == 1;
	if (fd >= 0)
		close(fd);
	return killed;
}

bool cgroup_has(int cgroup, pid_t pid)
{
	int member = 0, fd = openat(cgroup, "cgroup.procs", O_RDONLY | O_CLOEXEC);
	FILE *list = fd < 0 ? NULL : fdopen(fd, "r");
	while (list && member != pid && fscanf(list, "%d", &member) == 1)
		;
	if (list)
		fclose(list);
	return list && pid > 0 && member == pid;
}

bool cgroup_is_empty(int cgroup)
{
	char text[128];
	int fd = cgroup < 0 ? -1 : openat(cgroup, "cgroup.events", O_RDONLY | O_CLOEXEC);
	ssize_t size = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
	if (fd >= 0)
		close(fd);
	text[size > 0 ? size : 0] = 0;
	return !strstr(text, "populated 1");
}

/* Groups that a program has made inside its own stay as long as anything runs in any of them: it may be about to fill one. */
static void remove_group(int folder, const char *name, int depth)
{
	struct dirent *entry;
	if (!unlinkat(folder, name, AT_REMOVEDIR) || errno != EBUSY || depth == MAX_DEPTH)
		return;
	int fd = openat(folder, name, FOLDER);
	DIR *entries = fd >= 0 && cgroup_is_empty(fd) ? fdopendir(fd) : NULL;
	while (entries && (entry = readdir(entries)))
		if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
			remove_group(fd, entry->d_name, depth + 1);
	if (entries)
		closedir(entries);
	else if (fd >= 0)
		close(fd);
	if (entries)
		unlinkat(folder, name, AT_REMOVEDIR);
}

void cgroup_remove(int cgroup)
{
	char link[NAME_SIZE], path[PATH_MAX];
	snprintf(link, sizeof link, "/proc/self/fd/%d", cgroup);
	ssize_t size = cgroup < 0 ? -1 : readlink(link, path, sizeof path - 1);
	path[size < 0 ? 0 : size] = 0;
	const char *name = strrchr(path, '/');
	if (name)
		unlinkat(parent, name + 1, AT_REMOVEDIR);
	if (cgroup >= 0)
		close(cgroup);
}

void cgroup_outlive(int cgroup)
{
	if (cgroup >= 0)
		fchmod(cgroup, OUTLIVES);
}

static void kill_group(const char *name)
{
	struct stat info;
	int fd = openat(parent, name, FOLDER);
	if (fd >= 0 && !fstat(fd, &info) && (info.st_mode & 0777) != OUTLIVES)
		cgroup_kill(fd);
	if (fd >= 0)
		close(fd);
}

static void empty_group(const char *name)
{
	remove_group(parent, name, 0);
}

/* A group of another process that lives may be one that it is about to fill. */
static void handle_groups(char kind, void (*handle)(const char *name))
{
	struct dirent *entry;
	int fd = parent < 0 ? -1 : openat(parent, ".", FOLDER);
	DIR *entries = fd < 0 ? NULL : fdopendir(fd);
	while (entries && (entry = readdir(entries))) {
		int owner = atoi(entry->d_name + (entry->d_name[0] ? 2 : 0));
		if (entry->d_name[0] == kind && entry->d_name[1] == '-' && (owner == getpid() || kill(owner, 0)))
			handle(entry->d_name);
	}
	if (entries)
		closedir(entries);
}

void cgroup_sweep(char kind)
{
	handle_groups(kind, empty_group);
}

/* A group with the number of this process is one of a former process with the same number. */
void cgroup_kill_former(char kind)
{
	handle_groups(kind, kill_group);
}
