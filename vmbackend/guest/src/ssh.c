/* The SSH server for the machine's own users, on port 22.
 *
 * It runs while its key file exists. `guest ssh on|off` writes or removes the file and signals the stage. The server's
 * mount namespace differs from the kit's in /etc/passwd only: there root's home holds the users' keys, and its login shell
 * is the users'.
 */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define LOCK "/ssh/lock"
#define LISTEN_WAIT_MS 10000

bool write_user_keys(const char *lines, size_t size)
{
	return write_file(SSH_KEYS ".new", lines, size, 0600) && !rename(SSH_KEYS ".new", SSH_KEYS);
}

static pid_t begin_change(void)
{
	pid_t stage = enter_kit();
	int fd = open(LOCK, O_RDWR | O_CREAT | O_CLOEXEC, 0600); /* until this process ends */
	if (fd < 0 || flock(fd, LOCK_EX))
		die(EXIT_CANNOT_RUN, "cannot lock the users' SSH: %s", strerror(errno));
	return stage;
}

static int enable_ssh(void)
{
	size_t size;
	char *lines = read_input(&size);
	pid_t stage = begin_change();
	if (!write_user_keys(lines, size))
		die(EXIT_CANNOT_RUN, "cannot write the keys: %s", strerror(errno));
	kill(stage, SIGHUP);
	for (long long until = now_ms() + LISTEN_WAIT_MS; !user_ssh_listens(); sleep_ms(10))
		if (now_ms() > until)
			die(EXIT_CANNOT_RUN, "the SSH server cannot listen: is port " TEXT_OF(SSH_PORT) " taken?");
	return 0;
}

static int disable_ssh(void)
{
	pid_t stage = begin_change();
	signal(SIGHUP, SIG_IGN); /* this command may run in one of the sessions that it ends */
	if (unlink(SSH_KEYS) && errno != ENOENT)
		die(EXIT_CANNOT_RUN, "cannot remove the keys: %s", strerror(errno));
	kill(stage, SIGHUP);
	if (!end_sessions())
		die(EXIT_CANNOT_RUN, "some sessions do not end");
	return 0;
}

int ssh_main(const char *wanted)
{
	if (!strcmp(wanted, "on"))
		return enable_ssh();
	if (!strcmp(wanted, "off"))
		return disable_ssh();
	die(EXIT_CANNOT_RUN, "usage: guest ssh on|off");
}
