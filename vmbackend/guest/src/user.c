#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool parse_id(const char *text, unsigned *id)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);
	*id = (unsigned)value;
	return *text >= '0' && *text <= '9' && !*end && value < 0xffffffffUL;
}

/* Names and numbers as in container images: root needs no /etc/passwd, an unknown number has group 0. */
static struct passwd *look_up(const char *name)
{
	static struct passwd made;
	unsigned id;
	struct passwd *entry = getpwnam(name);
	if (entry)
		return entry;
	if (!parse_id(name, &id)) {
		if (strcmp(name, "root"))
			return NULL;
		id = 0;
	}
	entry = getpwuid(id);
	if (entry)
		return entry;
	made = (struct passwd){.pw_name = (char *)name, .pw_uid = id, .pw_dir = id ? "/" : "/root"};
	return &made;
}

static bool look_up_group(const char *name, gid_t *gid)
{
	struct group *entry = getgrnam(name);
	unsigned id;
	if (entry) {
		*gid = entry->gr_gid;
		return true;
	}
	bool number = parse_id(name, &id);
	*gid = id;
	return number;
}

/* Programs open their output by name (/dev/stdout, a terminal's path), which takes more than the descriptor. */
static void own_stdio(uid_t uid)
{
	struct stat info;
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (!fstat(fd, &info) && info.st_uid != uid && (S_ISFIFO(info.st_mode) || isatty(fd)))
			(void)!fchown(fd, uid, (gid_t)-1);
}

static int become_user(const char *spec)
{
	char name[256];
	snprintf(name, sizeof name, "%s", *spec ? spec : "root");
	char *group = strchr(name, ':');
	if (group)
		*group++ = 0;
	struct passwd *user = look_up(*name ? name : "root");
	gid_t gid = user ? user->pw_gid : 0;
	if (!user || (group && *group && !look_up_group(group, &gid))) {
		dprintf(STDERR_FILENO, "guest: no such user: %s\n", spec);
		return -1;
	}
	own_stdio(user->pw_uid);
	/* As in container runtimes, an explicit group replaces the user's groups. */
	int failed = group && *group ? setgroups(1, &gid) : initgroups(user->pw_name, gid);
	if (failed || setgid(gid) || setuid(user->pw_uid)) {
		dprintf(STDERR_FILENO, "guest: cannot become %s: %s\n", spec, strerror(errno));
		return -1;
	}
	setenv("HOME", user->pw_dir, 0);
	setenv("USER", user->pw_name, 0);
	setenv("LOGNAME", user->pw_name, 0);
	return 0;
}

void base_environment(void)
{
	size_t position = 0;
	const char *pair;
	clearenv();
	setenv("PATH", DEFAULT_PATH, 1);
	while ((pair = config_next("env", &position)))
		putenv((char *)pair);
	if (*config_get("hostname"))
		setenv("HOSTNAME", config_get("hostname"), 0);
}

const char *image_user(void)
{
	const char *user = config_get("user");
	return *user ? user : "root";
}

/* A requested directory must exist. That of the image may be gone, and the home of its user often never was.
 *
 * As with container runtimes root enters it: the user may work in it, and still not search what is above it. Where root is
 * refused, by a file system of its user's, the user tries. */
int become_user_in(const char *spec, const char *requested, const char *usual)
{
	const char *wanted = requested ? requested : usual;
	int error = chdir(wanted) ? errno : 0;
	if (become_user(spec))
		return -1;
	if (error == EACCES || error == EPERM)
		error = chdir(wanted) ? errno : 0;
	if (error && requested)
		die(EXIT_CANNOT_RUN, "cannot enter %s: %s", requested, strerror(error));
	if (error && chdir(getenv("HOME")) && chdir("/"))
		die(EXIT_CANNOT_RUN, "cannot enter /: %s", strerror(errno));
	return 0;
}

void exec_command(char **argv)
{
	execvp(argv[0], argv);
	die(errno == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN, "cannot start %s: %s", argv[0], strerror(errno));
}

void exec_shell(const struct passwd *user, const char *command)
{
	const char *shells[] = {user && *user->pw_shell ? user->pw_shell : "/bin/bash", "/bin/bash", "/bin/sh"};
	for (size_t i = 0; i < sizeof shells / sizeof *shells; i++) {
		/* Not a login shell: /etc/profile would replace the image's PATH. */
		setenv("SHELL", shells[i], 1);
		execl(shells[i], shells[i], command ? "-c" : NULL, command, NULL);
	}
}
