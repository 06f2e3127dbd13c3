/* `guest run --tty`: a command on the terminal that the SSH server opened, already the controlling one.
 * A NUL on the output requests the argument block, a second one reports the start; a failure message comes in between. */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <termios.h>
#include <unistd.h>

static struct termios settings;
static bool raw;

static void send_mark(void)
{
	if (write(STDOUT_FILENO, "", 1) != 1)
		_exit(EXIT_CANNOT_RUN);
}

/* A terminal's line discipline would echo the block, cut it at 4096 bytes and act on its control characters. */
void terminal_begin_arguments(void)
{
	struct termios changed;
	raw = !tcgetattr(STDIN_FILENO, &settings);
	if (!raw)
		return;
	changed = settings;
	cfmakeraw(&changed);
	if (tcsetattr(STDIN_FILENO, TCSANOW, &changed))
		die(EXIT_CANNOT_RUN, "cannot set the terminal: %s", strerror(errno));
	send_mark();
}

void terminal_end_arguments(void)
{
	if (raw && tcsetattr(STDIN_FILENO, TCSANOW, &settings))
		die(EXIT_CANNOT_RUN, "cannot set the terminal: %s", strerror(errno));
}

static bool on_path(const char *name)
{
	char place[4096];
	const char *path = getenv("PATH");
	if (strchr(name, '/') || !path)
		return !access(name, X_OK);
	for (; *path; path += strcspn(path, ":"), path += *path == ':') {
		int length = (int)strcspn(path, ":");
		snprintf(place, sizeof place, "%.*s/%s", length, length ? path : ".", name);
		if (!access(place, X_OK))
			return true;
	}
	return false;
}

static void exec_any_shell(void)
{
	const struct passwd *user = getpwuid(getuid());
	send_mark();
	exec_shell(user, NULL);
	setenv("SHELL", KIT "/bin/busybox", 1);
	execl(KIT "/bin/busybox", "sh", NULL);
	die(EXIT_NOT_FOUND, "no shell: %s", strerror(errno));
}

void terminal_exec(char **argv)
{
	if (!*argv)
		exec_any_shell();
	/* Checked first: once the command has the terminal, a failure message looks like its output. */
	if (!on_path(*argv))
		die(errno == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN, "cannot start %s: %s", *argv, strerror(errno));
	send_mark();
	exec_command(argv);
}

/* The SSH server reports the signal of the process it started, which is this one; it knows only these signals. */
void terminal_exit_by_signal(int number)
{
	static const int nameable[] = {SIGABRT, SIGALRM, SIGFPE, SIGHUP, SIGILL, SIGINT, SIGKILL,
				   SIGPIPE, SIGQUIT, SIGSEGV, SIGTERM, SIGUSR1, SIGUSR2};
	sigset_t all;
	for (size_t i = 0; i < sizeof nameable / sizeof *nameable; i++) {
		if (nameable[i] != number)
			continue;
		prctl(PR_SET_DUMPABLE, 0); /* the command's own core dump, if any, exists already */
		signal(number, SIG_DFL);
		raise(number);
		sigfillset(&all);
		sigprocmask(SIG_UNBLOCK, &all, NULL);
	}
}
