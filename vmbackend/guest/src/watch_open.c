/* How folders of the tree are opened.
 *
 * Events tell of the past, opening sees the present: the path of a folder by the events may lead elsewhere by now. A folder
 * is therefore known by its watch, which belongs to the inode: a second watch of it has the same number.
 */
#define _GNU_SOURCE
#include "watch_open.h"

#include "watch_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EVENTS (IN_CREATE | IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | \
		IN_MOVE_SELF | IN_ONLYDIR | IN_EXCL_UNLINK)
#define IN_ROOT 0x10 /* RESOLVE_IN_ROOT: absolute links lead into the user's file system */
#define BENEATH 0x0d /* RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH */
#define FOLDER_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

struct open_how {
	uint64_t flags, mode, resolve;
};

int inotify = -1;
static int guest = -1;
static const char *root_path;
static struct folder *opened; /* the parent of the last folder that was entered */
static int opened_fd = -1;

void set_root(int of_guest, const char *path)
{
	guest = of_guest;
	root_path = path;
}

/* Not kept open: the end of a folder is reported once no process has it open. */
int open_root(void)
{
	struct open_how how = {.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC, .resolve = IN_ROOT};
	return (int)syscall(SYS_openat2, guest, root_path, &how, sizeof how);
}

int open_beneath(int folder, const char *path)
{
	struct open_how how = {.flags = FOLDER_FLAGS, .resolve = BENEATH};
	return (int)syscall(SYS_openat2, folder, path, &how, sizeof how);
}

int add_watch(int fd)
{
	char link[32];
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	return inotify_add_watch(inotify, link, EVENTS);
}

/* At PATH in the folder of the watch, and errno is of what is below that: EXDEV is a mount. */
static int open_path(const char *path)
{
	int root = open_root();
	if (root < 0 && errno == EXDEV) /* a link of /proc is in its path now */
		errno = ELOOP;
	if (root < 0 || !*path)
		return root;
	int fd = open_beneath(root, path), error = errno;
	close(root);
	errno = error;
	return fd;
}

int open_known(const struct folder *folder)
{
	char path[MAX_WATCH_PATH];
	errno = ENAMETOOLONG;
	if (!tree_path(folder, "", path))
		return -1;
	errno = ENOENT;
	if (tree_is_moving(folder))
		return -1;
	int fd = open_path(path);
	if (fd < 0)
		return -1;
	int watch = add_watch(fd), error = errno;
	if (watch == folder->watch)
		return fd;
	if (watch >= 0 && !tree_find(watch))
		inotify_rm_watch(inotify, watch);
	close(fd);
	errno = watch >= 0 || error == ENOSPC ? ENOENT : error; /* a folder that is watched needs no further watch */
	return -1;
}

bool tree_is_there(const struct folder *folder)
{
	int fd = open_known(folder);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

bool root_is_gone(void)
{
	return !tree_is_there(root_folder) && (errno == ENOENT || errno == ENOTDIR);
}

void close_parent(void)
{
	if (opened)
		close(opened_fd);
	opened = NULL;
}

void forget_parent(const struct folder *folder)
{
	if (opened == folder)
		close_parent();
}

int open_parent(struct folder *folder)
{
	if (opened != folder) {
		close_parent();
		opened_fd = open_known(folder);
		opened = opened_fd < 0 ? NULL : folder;
	}
	return opened_fd;
}
