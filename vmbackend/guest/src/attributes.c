/* `guest attributes FROM TO`: TO, a file that is to replace FROM in its folder, gets its extended attributes (access lists and
 * capabilities are among them) and its mode. The owner it has: the file server gave it, at the file that it had made, while here
 * a user of the folder may have put another file in its place. What FROM restricts TO restricts, so what cannot be copied is an
 * error. */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define FLAGS (O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
#define MOST_BYTES 65536 /* of all names, or of a value: Linux's limits */
#define EXIT_GONE 3 /* there is nothing to keep */

static int open_regular(const char *path, struct stat *info)
{
	int fd = open(path, FLAGS);
	if (fd < 0 || (!fstat(fd, info) && S_ISREG(info->st_mode)))
		return fd;
	close(fd);
	errno = EINVAL;
	return -1;
}

/* An empty access list of the folder may have come with TO. */
static void remove_others(int from, int to)
{
	static char names[MOST_BYTES];
	ssize_t size = flistxattr(to, names, sizeof names);
	for (char *name = names; name < names + (size < 0 ? 0 : size); name += strlen(name) + 1)
		if (fgetxattr(from, name, NULL, 0) < 0 && errno == ENODATA)
			fremovexattr(to, name);
}

static bool copy_attributes(int from, int to)
{
	static char names[MOST_BYTES], value[MOST_BYTES];
	ssize_t size = flistxattr(from, names, sizeof names);
	if (size < 0)
		return errno == EOPNOTSUPP;
	for (char *name = names; name < names + size; name += strlen(name) + 1) {
		ssize_t length = fgetxattr(from, name, value, sizeof value);
		if (length < 0 ? errno != ENODATA : fsetxattr(to, name, value, (size_t)length, 0) && errno != EOPNOTSUPP)
			return false;
	}
	return true;
}

static void require_own(const struct stat *kept, const struct stat *made)
{
	if (made->st_nlink != 1 || made->st_uid != kept->st_uid || made->st_gid != kept->st_gid)
		die(1, "not a file that was made to replace this one");
}

int attributes_main(char **argv)
{
	struct stat kept, made;
	int from = open_regular(argv[0], &kept);
	if (from < 0)
		return EXIT_GONE;
	int to = open_regular(argv[1], &made);
	if (to >= 0) {
		require_own(&kept, &made);
		remove_others(from, to);
	}
	if (to < 0 || !copy_attributes(from, to) || fchmod(to, kept.st_mode & 07777))
		die(1, "cannot keep the file's attributes: %s", strerror(errno));
	return 0;
}
