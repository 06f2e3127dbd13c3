/* The one child of tini: runs runsvdir, says `ready`, and powers the machine off in order.
 *
 * It lives as long as the machine: if it ended, tini would end and the kernel would panic. It therefore does the last
 * steps of a power-off itself instead of leaving them to something that its own signals would kill.
 */
#define _GNU_SOURCE
#include "guest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define READY_WAIT_MS 15000 /* a kit whose agent or SSH never comes up must still start the user's process */
#define READY_POLL_MS 10
#define MAIN_GRACE_MS 5000
#define REST_GRACE_MS 1000
#define MAX_BUTTONS 8
#define SUPERVISE KIT "/service/main/supervise/"

struct input_event { /* linux/input.h, 64 bit */
	int64_t seconds, microseconds;
	uint16_t type, code;
	int32_t value;
};

static bool control_listens(void)
{
	char wanted[16], *table = read_file("/proc/net/tcp", NULL);
	snprintf(wanted, sizeof wanted, ":%04X ", CONTROL_PORT);
	bool found = table && strstr(table, wanted);
	free(table);
	return found;
}

/* Opening the agent's port ourselves would take it from the agent, so look for the agent's own descriptor. */
static bool agent_runs(void)
{
	char path[300], target[300], *pid = read_file(KIT "/service/agent/supervise/pid", NULL);
	bool found = false;
	snprintf(path, sizeof path, "/proc/%d/fd", pid ? atoi(pid) : 0);
	free(pid);
	DIR *links = opendir(path);
	struct dirent *entry;
	while (links && !found && (entry = readdir(links))) {
		ssize_t length = readlinkat(dirfd(links), entry->d_name, target, sizeof target - 1);
		target[length > 0 ? length : 0] = 0;
		found = !strncmp(target, "/dev/vport", 10);
	}
	if (links)
		closedir(links);
	return found;
}

static bool services_ready(void)
{
	char port[64];
	return control_listens() && (agent_runs() || find_port(AGENT_PORT, port, sizeof port));
}

static void send_event(const char *line)
{
	char name[64], path[80];
	if (find_port(EVENTS_PORT, name, sizeof name))
		return;
	snprintf(path, sizeof path, "/dev/%s", name);
	int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
	/* A host that does not read must not hold up a power-off: two seconds, then the line is dropped. */
	for (int tries = 0; fd >= 0 && write(fd, line, strlen(line)) < 0 && errno == EAGAIN && tries < 200; tries++)
		sleep_ms(10);
	close(fd);
}

static void tell_main(const char *command)
{
	int fd = open(SUPERVISE "control", O_WRONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd >= 0 && write(fd, command, strlen(command)) < 0)
		dprintf(STDERR_FILENO, "kit: the supervisor of the main process does not answer\n");
	close(fd);
}

static bool main_runs(void)
{
	char *state = read_file(SUPERVISE "stat", NULL);
	bool runs = state && strncmp(state, "down", 4);
	free(state);
	return runs;
}

static pid_t start_supervisor(void)
{
	pid_t child = fork();
	if (child)
		return child;
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setsid();
	/* runsvdir waits a second where its folder changed within the current one, as it did when it was unpacked. */
	struct timespec old[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
	utimensat(AT_FDCWD, KIT "/service", old, 0);
	char *environment[] = {"PATH=" KIT "/bin:" DEFAULT_PATH, NULL};
	execle(KIT "/bin/runsvdir", "runsvdir", KIT "/service", NULL, environment);
	die(EXIT_CANNOT_RUN, "cannot start runsvdir: %s", strerror(errno));
}

/* Kernel threads have no executable, and neither has a zombie. */
static bool processes_left(void)
{
	DIR *processes = opendir("/proc");
	struct dirent *entry;
	char path[300], target[8];
	bool found = false;
	while (processes && !found && (entry = readdir(processes))) {
		int pid = atoi(entry->d_name);
		snprintf(path, sizeof path, "/proc/%d/exe", pid);
		found = pid > 1 && pid != getpid() && readlink(path, target, sizeof target) > 0;
	}
	if (processes)
		closedir(processes);
	return found;
}

static void wait_while(bool (*condition)(void), long long limit_ms)
{
	long long until = now_ms() + limit_ms;
	while (condition() && now_ms() < until) {
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		sleep_ms(READY_POLL_MS);
	}
}

static void end_machine(int how)
{
	boot_say("powering off");
	tell_main("d");
	wait_while(main_runs, MAIN_GRACE_MS);
	kill(-1, SIGTERM);
	kill(-1, SIGCONT);
	wait_while(processes_left, REST_GRACE_MS);
	kill(-1, SIGKILL);
	wait_while(processes_left, REST_GRACE_MS);
	sync();
	/* Read-only file systems have nothing to recover at the next start; where that fails the journal does it. */
	mount(NULL, NEWROOT, NULL, MS_REMOUNT | MS_RDONLY, NULL);
	mount(NULL, KIT "/data", NULL, MS_REMOUNT | MS_RDONLY, NULL);
	sync();
	reboot(how);
	for (;;)
		pause();
}

static int open_buttons(struct pollfd *buttons)
{
	DIR *inputs = opendir("/sys/class/input");
	struct dirent *entry;
	int count = 0;
	while (inputs && count < MAX_BUTTONS && (entry = readdir(inputs))) {
		char path[300];
		if (strncmp(entry->d_name, "event", 5) || make_node("/sys/class/input", entry->d_name, S_IFCHR))
			continue;
		snprintf(path, sizeof path, "/dev/%s", entry->d_name);
		int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
		if (fd >= 0)
			buttons[count++] = (struct pollfd){.fd = fd, .events = POLLIN};
	}
	if (inputs)
		closedir(inputs);
	return count;
}

static bool power_pressed(int fd)
{
	struct input_event event;
	bool pressed = false;
	while (read(fd, &event, sizeof event) == sizeof event)
		pressed = pressed || (event.type == 1 && event.code == 116 && event.value == 1); /* EV_KEY KEY_POWER */
	return pressed;
}

/* What busybox's and sysvinit's poweroff, halt and reboot send to PID 1; tini forwards it. */
static void handle_signal(int fd, pid_t *supervisor)
{
	struct signalfd_siginfo info;
	if (read(fd, &info, sizeof info) != sizeof info)
		return;
	if (info.ssi_signo == SIGUSR1 || info.ssi_signo == SIGUSR2)
		end_machine(RB_POWER_OFF);
	if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT)
		end_machine(RB_AUTOBOOT);
	pid_t ended;
	while ((ended = waitpid(-1, NULL, WNOHANG)) > 0)
		if (ended == *supervisor) {
			sleep_ms(100); /* a supervisor that cannot start must not burn the machine's CPU */
			*supervisor = start_supervisor();
		}
}

static int block_signals(void)
{
	sigset_t wanted;
	sigemptyset(&wanted);
	for (const int *number = (const int[]){SIGCHLD, SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP, 0}; *number; number++)
		sigaddset(&wanted, *number);
	sigprocmask(SIG_BLOCK, &wanted, NULL);
	return signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void announce(void)
{
	boot_say("ready");
	send_event("ready\n");
	if (*config_get("cmd") || *config_get("entrypoint"))
		tell_main(*config_get("cmd") ? "o" : "u");
}

static void serve(struct pollfd *sources, int count)
{
	pid_t supervisor = start_supervisor();
	long long until = now_ms() + READY_WAIT_MS;
	bool announced = false;
	for (;;) {
		int events = poll(sources, (nfds_t)count, announced ? -1 : READY_POLL_MS);
		for (int i = 1; i < count && events > 0; i++)
			if (sources[i].revents && power_pressed(sources[i].fd))
				end_machine(RB_POWER_OFF);
		if (events > 0 && sources[0].revents)
			handle_signal(sources[0].fd, &supervisor);
		if (!announced && (services_ready() || now_ms() > until)) {
			announce();
			announced = true;
		}
	}
}

int stage_main(const char *kit_namespace)
{
	struct pollfd sources[MAX_BUTTONS + 1];
	int fd = atoi(kit_namespace);
	if (setns(fd, CLONE_NEWNS) || chdir("/"))
		die(EXIT_CANNOT_RUN, "cannot enter the kit's file system: %s", strerror(errno));
	close(fd);
	set_oom("-1000");
	config_load(CONFIG_FILE);
	sources[0] = (struct pollfd){.fd = block_signals(), .events = POLLIN};
	serve(sources, 1 + open_buttons(sources + 1));
	return 1;
}

/* runsv's finish script of the main process: CODE is -1 where a signal ended it, then STATUS is that signal. */
int finish_main(const char *code, const char *status)
{
	char line[64];
	int exit_code = atoi(code), ended_by = atoi(status);
	config_load(CONFIG_FILE);
	if (!*config_get("cmd")) {
		if (exit_code == 0)
			tell_main("d");
		else
			sleep_ms(5000); /* before runsv starts the image's service again */
		return 0;
	}
	if (exit_code >= 0)
		ended_by = 0;
	snprintf(line, sizeof line, "exit %d %d\n", exit_code < 0 ? 128 + ended_by : exit_code, ended_by);
	send_event(line);
	kill(1, SIGUSR2);
	return 0;
}
