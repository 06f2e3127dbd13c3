/* The SSH server for the machine's own users, on port 22.
 *
 * It is wanted where its file of keys exists; the stage keeps it running then. `guest ssh on|off` writes or removes the
 * file and tells the stage. The server's own mount namespace differs from the kit's in /etc/passwd alone: there root's
 * home holds the users' keys, and its shell is theirs.
 */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SSH_PORT 22
#define KEYS "/ssh/.ssh/authorized_keys"
#define LOCK "/ssh/lock"
#define PID_FILE "/ssh.pid"
#define PASSWD "/etc/passwd.ssh"
#define RESTART_MS 1000
#define LISTEN_WAIT_MS 10000

static pid_t server; /* 0: none */
static long long restart_at;

static void run_server(void)
{
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setsid();
	set_oom("0");
	unlink(PID_FILE); /* the server writes it once it listens */
	if (unshare(CLONE_NEWNS) || mount(PASSWD, "/etc/passwd", NULL, MS_BIND, NULL))
		die(EXIT_CANNOT_RUN, "cannot prepare the users' SSH: %s", strerror(errno));
	execl(KIT "/bin/dropbear", SSH_SERVER_NAME, "-F", "-s", "-m", "-K", "30", "-W", "524288", "-P", PID_FILE, "-r",
	      HOST_KEY, "-p", "0.0.0.0:" TEXT_OF(SSH_PORT), NULL); /* with IPv6 too it would be content with either */
	die(EXIT_CANNOT_RUN, "cannot start dropbear: %s", strerror(errno));
}

int user_ssh_attend(void)
{
	bool wanted = !access(KEYS, F_OK);
	if (!wanted && server)
		kill(server, SIGKILL);
	if (!wanted || server)
		return -1;
	long long rest = restart_at - now_ms();
	if (rest > 0)
		return (int)rest;
	server = fork();
	if (!server)
		run_server();
	if (server > 0)
		return -1;
	user_ssh_ended(server);
	return RESTART_MS;
}

void user_ssh_ended(pid_t child)
{
	if (child != server)
		return;
	server = 0;
	restart_at = now_ms() + RESTART_MS;
}

static bool listens(void)
{
	char *pid = read_file(PID_FILE, NULL);
	bool found = pid && process_listens(atoi(pid), SSH_PORT);
	free(pid);
	return found;
}

bool user_ssh_ready(void)
{
	return access(KEYS, F_OK) || listens();
}

bool write_user_keys(const char *lines, size_t size)
{
	return write_file(KEYS ".new", lines, size, 0600) && !rename(KEYS ".new", KEYS);
}

/* Works from the user's mount namespace as from the kit's, and needs no /proc, which a user may have unmounted. */
static pid_t enter_kit(void)
{
	char *text = read_file(STAGE_FILE, NULL);
	pid_t stage = text ? atoi(text) : 0;
	free(text);
	int fd = stage ? (int)syscall(SYS_pidfd_open, stage, 0) : -1;
	if (fd < 0 || setns(fd, CLONE_NEWNS) || chdir("/"))
		die(EXIT_CANNOT_RUN, "cannot reach the kit: %s", strerror(errno));
	close(fd);
	return stage;
}

static pid_t begin_change(void)
{
	pid_t stage = enter_kit();
	int fd = open(LOCK, O_RDWR | O_CREAT | O_CLOEXEC, 0600); /* until this process ends */
	if (fd < 0 || flock(fd, LOCK_EX))
		die(EXIT_CANNOT_RUN, "cannot lock the users' SSH: %s", strerror(errno));
	return stage;
}

static char *read_keys(size_t *size)
{
	char *lines = malloc(CONFIG_MAX + 1);
	ssize_t got = 0;
	*size = 0;
	while (lines && *size <= CONFIG_MAX && (got = read(STDIN_FILENO, lines + *size, CONFIG_MAX + 1 - *size)) > 0)
		*size += (size_t)got;
	if (!lines || got < 0 || *size > CONFIG_MAX)
		die(EXIT_CANNOT_RUN, "cannot take the keys");
	return lines;
}

static int turn_on(void)
{
	size_t size;
	char *lines = read_keys(&size);
	pid_t stage = begin_change();
	if (!write_user_keys(lines, size))
		die(EXIT_CANNOT_RUN, "cannot write the keys: %s", strerror(errno));
	kill(stage, SIGHUP);
	for (long long until = now_ms() + LISTEN_WAIT_MS; !listens(); sleep_ms(10))
		if (now_ms() > until)
			die(EXIT_CANNOT_RUN, "the SSH server cannot listen: is port " TEXT_OF(SSH_PORT) " taken?");
	return 0;
}

static int turn_off(void)
{
	pid_t stage = begin_change();
	signal(SIGHUP, SIG_IGN); /* of our own terminal, where that is one of the sessions that we end */
	if (unlink(KEYS) && errno != ENOENT)
		die(EXIT_CANNOT_RUN, "cannot remove the keys: %s", strerror(errno));
	kill(stage, SIGHUP);
	if (!end_sessions())
		die(EXIT_CANNOT_RUN, "some sessions do not end");
	return 0;
}

int ssh_main(const char *wanted)
{
	if (!strcmp(wanted, "on"))
		return turn_on();
	if (!strcmp(wanted, "off"))
		return turn_off();
	die(EXIT_CANNOT_RUN, "usage: guest ssh on|off");
}
