/* The login shells of both SSH servers. They enter the user's file system and run the command: the control plane's with
 * the kit's shell, the users' with their own.
 */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define SFTP_SUBSYSTEM "/usr/lib/sftp-server" /* compiled into dropbear */

/* sftp-server refuses to start without it, and a user's `rm -rf /dev` must not block the control plane. */
void restore_dev_null(void)
{
	if (access("/dev/null", F_OK) && ensure_dir("/dev", 0755) && !mknod("/dev/null", S_IFCHR | 0666, makedev(1, 3)))
		chmod("/dev/null", 0666);
}

/* Enters the user's file system with the machine's environment; of the server's environment, only INHERITED stays. */
static int enter_with(const char *const *inherited)
{
	char *pairs[8] = {NULL};
	set_oom("0");
	config_load(CONFIG_FILE);
	for (size_t i = 0; inherited[i]; i++)
		if (getenv(inherited[i]) && asprintf(&pairs[i], "%s=%s", inherited[i], getenv(inherited[i])) < 0)
			die(EXIT_CANNOT_RUN, "out of memory");
	/* Opened before the switch: the user may have unmounted the kit in their own view. */
	int busybox = open(KIT "/bin/busybox", O_PATH | O_CLOEXEC);
	enter_guest();
	restore_dev_null();
	base_environment();
	for (size_t i = 0; inherited[i]; i++)
		if (pairs[i])
			putenv(pairs[i]);
	return busybox;
}

static const char *command_of(int argc, char **argv)
{
	return argc == 3 && !strcmp(argv[1], "-c") ? argv[2] : NULL;
}

static void enter_home(void)
{
	if (chdir(getenv("HOME")) && chdir("/"))
		die(EXIT_CANNOT_RUN, "no root directory: %s", strerror(errno));
}

static void serve_files(const char *command)
{
	if (command && !strcmp(command, SFTP_SUBSYSTEM))
		execl(KIT "/bin/sftp-server", "sftp-server", NULL);
}

/* The control plane's command lines call the helper (guest/commands.py): those are executed here, without starting a shell
 * and the helper as separate processes. Anything else goes to the shell. */
static const char *run_arguments(const char *command)
{
	static char size[21];
	char more;
	return command && sscanf(command, KIT "/bin/guest run --stdin-args %20[0-9]%c", size, &more) == 1 ? size : NULL;
}

/* Handled in the kit's namespace, where the hold listens: FOLDER BUFFER LINGER. */
static void serve_attach(const char *command)
{
	static char folder[64], buffer[16], linger[16];
	char more;
	char *options[] = {folder, buffer, linger, NULL};
	if (!command || sscanf(command, KIT "/bin/guest attach %63[a-z/] %15[0-9] %15[0-9]%c", folder, buffer, linger, &more) != 3)
		return;
	set_oom("0");
	exit(attach_main(options));
}

int shell_main(int argc, char **argv)
{
	static const char *const inherited[] = {"TERM", NULL};
	const char *command = command_of(argc, argv), *size = run_arguments(command);
	serve_attach(command);
	if (size)
		cgroup_prepare();
	int busybox = enter_with(inherited);
	setenv("HOME", "/root", 0);
	enter_home();
	serve_files(command);
	if (size)
		return run_main(3, (char *[]){"run", "--stdin-args", (char *)size, NULL});
	char *run[] = {"sh", command ? "-c" : "-l", (char *)command, NULL};
	fexecve(busybox, run, environ);
	die(EXIT_CANNOT_RUN, "cannot start the kit's shell: %s", strerror(errno));
}

int login_main(int argc, char **argv)
{
	static const char *const inherited[] = {"TERM", "SSH_TTY", "SSH_CONNECTION", "SSH_CLIENT", NULL};
	const char *command = command_of(argc, argv);
	int busybox = enter_with(inherited);
	struct passwd *root = getpwuid(0);
	const char *const own[][2] = {{"HOME", root ? root->pw_dir : "/root"}, {"USER", "root"}, {"LOGNAME", "root"}};
	for (size_t i = 0; i < sizeof own / sizeof *own; i++)
		setenv(own[i][0], own[i][1], 0);
	enter_home();
	serve_files(command);
	exec_shell(root, command);
	char *run[] = {"sh", command ? "-c" : NULL, (char *)command, NULL};
	setenv("SHELL", KIT "/bin/busybox", 1);
	fexecve(busybox, run, environ);
	die(EXIT_NOT_FOUND, "no shell: %s", strerror(errno));
}
