/* The login shell of the control SSH: goes into the user's file system and runs what the control plane sent. */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define SFTP_SUBSYSTEM "/usr/lib/sftp-server" /* compiled into dropbear */

/* sftp-server refuses to start without it, and a user's `rm -rf /dev` must not lock the control plane out. */
static void mend_null(void)
{
	if (access("/dev/null", F_OK) && ensure_dir("/dev", 0755) && !mknod("/dev/null", S_IFCHR | 0666, makedev(1, 3)))
		chmod("/dev/null", 0666);
}

int shell_main(int argc, char **argv)
{
	const char *command = argc == 3 && !strcmp(argv[1], "-c") ? argv[2] : NULL;
	set_oom("0");
	config_load(CONFIG_FILE);
	const char *terminal = getenv("TERM");
	terminal = terminal ? strdup(terminal) : NULL;
	/* Opened before the switch: the user may have unmounted the kit in their own view. */
	int busybox = open(KIT "/bin/busybox", O_PATH | O_CLOEXEC);
	enter_guest();
	mend_null();
	base_environment();
	setenv("HOME", "/root", 0);
	if (terminal)
		setenv("TERM", terminal, 1);
	if (chdir(getenv("HOME")) && chdir("/"))
		die(EXIT_CANNOT_RUN, "no root directory: %s", strerror(errno));
	if (command && !strcmp(command, SFTP_SUBSYSTEM))
		execl(KIT "/bin/sftp-server", "sftp-server", NULL);
	char *run[] = {"sh", command ? "-c" : "-l", (char *)command, NULL};
	fexecve(busybox, run, environ);
	die(EXIT_CANNOT_RUN, "cannot start the kit's shell: %s", strerror(errno));
}
