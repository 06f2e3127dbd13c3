/* What the run scripts of the kit's runit services start. */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_DIR "/var/log/workspace"
#define TEXT(value) #value
#define TEXT_OF(value) TEXT(value)

int control_main(void)
{
	/* No password, no forwarding, sessions that died are dropped after three silent half minutes. */
	execl(KIT "/bin/dropbear", "dropbear", "-F", "-s", "-j", "-k", "-m", "-K", "30", "-W", "524288", "-P", "/control.pid",
	      "-r", KIT "/host_key", "-p", TEXT_OF(CONTROL_PORT), NULL);
	die(EXIT_CANNOT_RUN, "cannot start dropbear: %s", strerror(errno));
}

int agent_main(void)
{
	char name[64], path[80];
	while (find_port(AGENT_PORT, name, sizeof name))
		sleep_ms(1000); /* a machine without the port: nothing to serve, and nothing to restart for */
	snprintf(path, sizeof path, "/dev/%s", name);
	set_oom("-500");
	setenv("PATH", KIT "/bin:" DEFAULT_PATH, 1);
	execl(KIT "/bin/qemu-ga", "qemu-ga", "-m", "virtio-serial", "-p", path, "-t", "/run", NULL);
	die(EXIT_CANNOT_RUN, "cannot start qemu-ga: %s", strerror(errno));
}

int process_main(void)
{
	char **argv;
	if (!config_load(CONFIG_FILE))
		die(EXIT_CANNOT_RUN, "no configuration");
	if (!config_list("cmd", &argv) && !config_list("entrypoint", &argv))
		die(EXIT_NOT_FOUND, "nothing to start");
	setsid();
	set_oom("0");
	enter_guest();
	int input = open("/dev/null", O_RDONLY);
	dup2(input, STDIN_FILENO);
	base_environment();
	setenv("HOSTNAME", config_get("hostname"), 0);
	if (become_user(config_get("user")))
		return EXIT_CANNOT_RUN;
	const char *directory = config_get("cwd");
	if (chdir(*directory ? directory : "/"))
		die(EXIT_CANNOT_RUN, "cannot enter %s: %s", directory, strerror(errno));
	exec_command(argv);
}

int log_main(void)
{
	/* 4 files of 1 MB each: the newest is `current`, and cmd.log leads to it. */
	static const char rules[] = "s1000000\nn4\n";
	enter_guest();
	if (!ensure_dir("/var", 0755) || !ensure_dir("/var/log", 0755) || !ensure_dir(LOG_DIR, 0755) ||
	    !ensure_dir(LOG_DIR "/cmd", 0755) || !write_file(LOG_DIR "/cmd/config", rules, strlen(rules), 0644))
		die(EXIT_CANNOT_RUN, "cannot prepare " LOG_DIR ": %s", strerror(errno));
	unlink(LOG_DIR "/cmd.log");
	if (symlink("cmd/current", LOG_DIR "/cmd.log"))
		die(EXIT_CANNOT_RUN, "cannot name the log: %s", strerror(errno));
	execl(KIT "/bin/svlogd", "svlogd", LOG_DIR "/cmd", NULL);
	die(EXIT_CANNOT_RUN, "cannot start svlogd: %s", strerror(errno));
}

int enter_main(char **argv)
{
	enter_guest();
	exec_command(argv);
}
