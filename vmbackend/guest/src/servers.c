/* The two SSH servers, the control plane's and the users', and the relay. The stage itself starts and restarts them: `ready`
 * depends on the first one only, and runit takes longer to come up than both. The relay follows `ready`.
 */
#define _GNU_SOURCE
#include "guest.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#define CONTROL_PID "/control.pid" /* the servers write these once they listen */
#define SSH_PID "/ssh.pid"
#define PASSWD "/etc/passwd.ssh"
#define SSH_PROGRAM KIT "/bin/dropbear"
#define RESTART_MS 1000
#define LISTEN_WAIT_MS 10000

struct server {
	pid_t pid; /* 0: none */
	long long restart_at;
	const char *pid_file; /* NULL: none */
	void (*run)(void);
	bool of_user; /* what it starts is the user's */
	bool restarting; /* it was ended on purpose: the next one follows at once */
};

static void run_control(void)
{
	/* No passwords, no forwarding; dead sessions are dropped after three missed keepalives of 30 s. */
	execl(SSH_PROGRAM, "dropbear", "-F", "-s", "-j", "-k", "-m", "-K", "30", "-W", "524288", "-P", CONTROL_PID,
	      "-r", HOST_KEY, "-p", TEXT_OF(CONTROL_PORT), NULL);
}

static void run_ssh(void)
{
	set_oom("0");
	if (unshare(CLONE_NEWNS) || mount(PASSWD, "/etc/passwd", NULL, MS_BIND, NULL))
		die(EXIT_CANNOT_RUN, "cannot prepare the users' SSH: %s", strerror(errno));
	execl(SSH_PROGRAM, SSH_SERVER_NAME, "-F", "-s", "-m", "-K", "30", "-W", "524288", "-P", SSH_PID, "-r",
	      HOST_KEY, "-p", "0.0.0.0:" TEXT_OF(SSH_PORT), NULL); /* IPv4 only: with both, dropbear accepts a failure to bind one */
}

static struct server control = {.pid_file = CONTROL_PID, .run = run_control};
static struct server ssh = {.pid_file = SSH_PID, .run = run_ssh, .of_user = true};
static struct server relay = {.run = run_relay};

static void run_server(const struct server *server)
{
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setsid();
	if (server->pid_file)
		unlink(server->pid_file);
	server->run();
	die(EXIT_CANNOT_RUN, "cannot start a server: %s", strerror(errno));
}

static void ended(struct server *server)
{
	server->pid = 0;
	server->restart_at = now_ms() + (server->restarting ? 0 : RESTART_MS);
	server->restarting = false;
}

static int maintain(struct server *server, bool wanted)
{
	if (!wanted && server->pid)
		kill(server->pid, SIGKILL);
	if (!wanted || server->pid)
		return -1;
	long long rest = server->restart_at - now_ms();
	if (rest > 0)
		return (int)rest;
	server->pid = server->of_user ? fork_service() : fork();
	if (!server->pid)
		run_server(server);
	if (server->pid > 0)
		return -1;
	ended(server);
	return RESTART_MS;
}

int servers_maintain(void)
{
	int wait = shorter_wait(maintain(&control, true), maintain(&ssh, !access(SSH_KEYS, F_OK)));
	return shorter_wait(wait, maintain(&relay, !access(READY_FILE, F_OK)));
}

void server_ended(pid_t child)
{
	if (child == control.pid)
		ended(&control);
	else if (child == ssh.pid)
		ended(&ssh);
	else if (child == relay.pid)
		ended(&relay);
}

bool servers_ready(void)
{
	return !access(CONTROL_PID, F_OK) && (access(SSH_KEYS, F_OK) || user_ssh_listens());
}

/* Checks the owner of the socket, as another program may listen on the port. */
bool user_ssh_listens(void)
{
	char *pid = read_file(SSH_PID, NULL);
	bool found = pid && process_listens(atoi(pid), SSH_PORT);
	free(pid);
	return found;
}

/* The servers and those of their connections are all processes of one program. */
static void kill_all(void)
{
	DIR *processes = opendir("/proc");
	struct dirent *entry;
	char path[300], target[sizeof SSH_PROGRAM];
	while (processes && (entry = readdir(processes))) {
		snprintf(path, sizeof path, "/proc/%d/exe", atoi(entry->d_name));
		ssize_t size = readlink(path, target, sizeof target);
		if (size == sizeof SSH_PROGRAM - 1 && !memcmp(target, SSH_PROGRAM, (size_t)size))
			kill(atoi(entry->d_name), SIGKILL);
	}
	if (processes)
		closedir(processes);
}

static void end_server(struct server *server)
{
	if (!server->pid)
		return;
	kill(server->pid, SIGKILL);
	server->restarting = true;
	while (waitpid(server->pid, NULL, 0) < 0 && errno == EINTR)
		;
	ended(server);
}

bool servers_restart(void)
{
	kill_all();
	end_server(&control);
	end_server(&ssh);
	end_server(&relay);
	unlink(CONTROL_PID);
	control.restart_at = 0;
	servers_maintain();
	errno = ETIMEDOUT;
	for (long long until = now_ms() + LISTEN_WAIT_MS; access(CONTROL_PID, F_OK); sleep_ms(2))
		if (now_ms() > until)
			return false;
	return true;
}
