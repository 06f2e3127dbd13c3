/* Files of the kernel that show something else to the machine's programs: a file of the kit is mounted over them once, in the
 * namespace of PID 1, and rewritten later. The kit's own namespace keeps what the kernel says. */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CLONE_TREE 1U    /* OPEN_TREE_CLONE of linux/mount.h */
#define FROM_ITSELF 4U   /* MOVE_MOUNT_F_EMPTY_PATH */
#define MOUNT_NAMESPACE "/proc/%s/ns/mnt"

static int open_namespace(const char *process)
{
	char path[64];
	snprintf(path, sizeof path, MOUNT_NAMESPACE, process);
	return open(path, O_RDONLY | O_CLOEXEC);
}

/* A mount that has no place yet crosses namespaces; one that has cannot. */
static bool mount_for_programs(const char *source, const char *path)
{
	int tree = (int)syscall(SYS_open_tree, AT_FDCWD, source, CLONE_TREE | O_CLOEXEC);
	int own = open_namespace("self"), theirs = open_namespace("1");
	bool entered = tree >= 0 && own >= 0 && theirs >= 0 && !setns(theirs, CLONE_NEWNS);
	bool moved = entered && !syscall(SYS_move_mount, tree, "", AT_FDCWD, path, FROM_ITSELF);
	int failure = errno;
	if (entered && (setns(own, CLONE_NEWNS) || chdir("/")))
		boot_fail("cannot go back to the kit");
	for (const int *fd = (const int[]){tree, own, theirs, -1}; *fd >= 0; fd++)
		close(*fd);
	errno = failure;
	return moved;
}

static bool rewrite(const char *source, const char *data, size_t size)
{
	int fd = open(source, O_WRONLY | O_TRUNC | O_CLOEXEC);
	bool written = fd >= 0 && write(fd, data, size) == (ssize_t)size;
	if (fd >= 0)
		close(fd);
	return written;
}

bool show_instead(const char *path, const char *name, const char *data, size_t size, mode_t mode)
{
	char source[64];
	snprintf(source, sizeof source, KIT "/shown-%s", name);
	if (!access(source, F_OK))
		return rewrite(source, data, size);
	if (write_file(source, data, size, mode) && mount_for_programs(source, path))
		return true;
	int failure = errno;
	unlink(source);
	errno = failure;
	return false;
}
