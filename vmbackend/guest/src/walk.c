/* `guest walk DEPTH LIMIT [PATTERN...]`: the entries below the working directory, in order, as records of
 *
 *     KIND SIZE MODIFIED PATH NUL TARGET NUL
 *
 * KIND is `d` (a directory, or a link to one) or `f`; `l` for a link, which TARGET belongs to, else `-`; `r` for a regular file,
 * or a link to one, else `s`. Links are not entered, nor are other file systems, nor what a pattern names (ignore.c). After LIMIT records comes `+ NUL NUL` if there are more.
 *
 * `guest walk - LIMIT` does the same for the NUL-separated paths on its standard input; what is gone has no record.
 *
 * `guest list LIMIT NAME`: the entries of the working directory after NAME, as they are, as records of
 *
 *     MODE SIZE MODIFIED NAME NUL TARGET NUL
 *
 * with the kind of the entry in MODE, in octal digits. Names that the platform makes (own_names.c) have no record.
 */
#define _GNU_SOURCE
#include "guest.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static long left; /* records */
static dev_t device;
static char *const *ignored;
static char path[PATH_MAX];
static const char *after = "";
static bool with_mode;

static void end_walk(bool more)
{
	if (more)
		fwrite("+\0", 1, 3, stdout);
	exit(fflush(stdout) ? EXIT_CANNOT_RUN : 0);
}

static void print_kind(int folder, const char *name, const struct stat *info)
{
	struct stat end;
	bool link = S_ISLNK(info->st_mode);
	bool leads = !link || !fstatat(folder, name, &end, 0);
	mode_t mode = !leads ? 0 : link ? end.st_mode : info->st_mode;
	printf("%c%c%c", S_ISDIR(mode) ? 'd' : 'f', link ? 'l' : '-', S_ISREG(mode) ? 'r' : 's');
}

/* Prints the record of NAME in FOLDER, and its file information. False if it is gone, or ignored. */
static bool print_entry(int folder, const char *name, struct stat *info)
{
	char target[PATH_MAX] = "";
	const char *slash = strrchr(name, '/');
	if (is_own_name(slash ? slash + 1 : name) || fstatat(folder, name, info, AT_SYMLINK_NOFOLLOW))
		return false;
	if (is_ignored(ignored, path, S_ISDIR(info->st_mode)))
		return false;
	if (!left--)
		end_walk(true);
	if (S_ISLNK(info->st_mode)) {
		ssize_t length = readlinkat(folder, name, target, sizeof target - 1);
		target[length < 0 ? 0 : length] = 0;
	}
	if (with_mode)
		printf("%o", info->st_mode);
	else
		print_kind(folder, name, info);
	printf(" %lld %lld %s", (long long)info->st_size, (long long)info->st_mtime, path);
	putchar(0);
	printf("%s", target);
	putchar(0);
	return true;
}

static int by_name(const void *one, const void *other)
{
	return strcmp(*(char *const *)one, *(char *const *)other);
}

/* The names in a directory, in order; those of `.` and `..` are left out. */
static size_t read_names(DIR *folder, char ***names)
{
	size_t count = 0, capacity = 0;
	struct dirent *entry;
	*names = NULL;
	while ((entry = readdir(folder))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") || strcmp(entry->d_name, after) <= 0)
			continue;
		if (count == capacity)
			*names = realloc(*names, (capacity = capacity * 2 + 64) * sizeof **names);
		if (!*names || !((*names)[count++] = strdup(entry->d_name)))
			die(EXIT_CANNOT_RUN, "out of memory");
	}
	if (count)
		qsort(*names, count, sizeof **names, by_name);
	return count;
}

/* The entries of the directory FD, whose own path, with a slash, has LENGTH bytes. Closes FD. */
static void walk_folder(int fd, size_t length, long depth)
{
	DIR *folder = fdopendir(fd);
	char **names = NULL;
	struct stat info;
	size_t count = folder ? read_names(folder, &names) : 0;
	for (size_t i = 0; i < count; free(names[i++])) {
		size_t end = length + strlen(names[i]);
		if (end + 2 > sizeof path) /* no request could name what is below */
			continue;
		strcpy(path + length, names[i]);
		if (!print_entry(fd, names[i], &info) || !S_ISDIR(info.st_mode) || depth <= 1 || info.st_dev != device)
			continue;
		int below = openat(fd, names[i], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		strcpy(path + end, "/");
		if (below >= 0)
			walk_folder(below, end + 1, depth - 1);
	}
	free(names);
	if (folder)
		closedir(folder);
	else
		close(fd);
}

static void print_named(void)
{
	char *name = NULL;
	size_t size = 0;
	ssize_t length;
	struct stat info;
	while ((length = getdelim(&name, &size, 0, stdin)) > 0) {
		if (name[length - 1] || length > (ssize_t)sizeof path)
			continue;
		strcpy(path, name);
		print_entry(AT_FDCWD, path, &info);
	}
}

static void walk_here(long depth)
{
	struct stat info;
	int folder = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (folder < 0 || fstat(folder, &info))
		die(EXIT_CANNOT_RUN, "cannot read the directory");
	device = info.st_dev;
	walk_folder(folder, 0, depth);
	end_walk(false);
}

int list_main(char **argv)
{
	left = strtol(argv[0], NULL, 10);
	after = argv[1];
	ignored = argv + 2;
	with_mode = true;
	walk_here(1);
	return 0;
}

int walk_main(int argc, char **argv)
{
	left = strtol(argv[1], NULL, 10);
	ignored = argv + (argc < 2 ? argc : 2); /* ends with NULL, as ARGV does */
	if (!strcmp(argv[0], "-")) {
		print_named();
		end_walk(false);
	}
	walk_here(strtol(argv[0], NULL, 10));
	return 0;
}
