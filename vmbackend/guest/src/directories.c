/* The folders that the image's configuration names, its working directory and its volumes, where no layer has them. */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_LINKS 8

static bool make_path(const char *path, int links);

/* PLACE is a link to where nothing is: makes what it names, as programs that go through it expect. */
static bool make_target(const char *place, int links)
{
	char target[PATH_MAX], whole[2 * PATH_MAX];
	ssize_t length = readlink(place, target, sizeof target - 1);
	if (length < 0)
		return false;
	if (!links) {
		errno = ELOOP;
		return false;
	}
	target[length] = 0;
	int folder = *target == '/' ? 0 : (int)(strrchr(place, '/') - place);
	snprintf(whole, sizeof whole, "%.*s/%s", folder, place, target);
	return make_path(whole, links - 1);
}

static bool make_one(const char *place, int links)
{
	struct stat found;
	if (!mkdir(place, 0755))
		return true;
	if (errno != EEXIST)
		return false;
	if (stat(place, &found))
		return errno == ENOENT && make_target(place, links);
	errno = ENOTDIR;
	return S_ISDIR(found.st_mode);
}

static bool make_path(const char *path, int links)
{
	char place[PATH_MAX];
	if (snprintf(place, sizeof place, "%s", path) >= (int)sizeof place) {
		errno = ENAMETOOLONG;
		return false;
	}
	char *end = place;
	while ((end = strchr(end + 1, '/'))) {
		*end = 0;
		if (!make_one(place, links))
			return false;
		*end = '/';
	}
	return make_one(place, links);
}

void make_directories(void)
{
	size_t position = 0;
	const char *path;
	while ((path = config_next("directory", &position)))
		if (!make_path(path, MAX_LINKS))
			log_boot("cannot make the folder %.300s of the image: %s", path, strerror(errno));
}
