/* The kit's runit services: what their run scripts start, and the control of their supervisors. */
#define _GNU_SOURCE
#include "guest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define SERVICE_GROUP 's'

int agent_main(void)
{
	char name[64], path[80];
	while (find_port(AGENT_PORT, name, sizeof name))
		sleep_ms(1000); /* a machine without the port: idle instead of restarting */
	snprintf(path, sizeof path, "/dev/%s", name);
	set_oom("-500");
	setenv("PATH", KIT "/bin:" DEFAULT_PATH, 1);
	execl(KIT "/bin/qemu-ga", "qemu-ga", "-m", "virtio-serial", "-p", path, "-t", "/run", NULL);
	die(EXIT_CANNOT_RUN, "cannot start qemu-ga: %s", strerror(errno));
}

/* The port can be opened once only, so this looks for the agent's descriptor instead. */
static bool agent_runs(void)
{
	char path[300], target[300];
	bool found = false;
	snprintf(path, sizeof path, "/proc/%d/fd", (int)service_process("agent"));
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

bool agent_ready(void)
{
	char port[64];
	return agent_runs() || find_port(AGENT_PORT, port, sizeof port);
}

void send_event(const char *line)
{
	char name[64], path[80];
	if (find_port(EVENTS_PORT, name, sizeof name))
		return;
	snprintf(path, sizeof path, "/dev/%s", name);
	int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
	/* A host that does not read must not delay a power-off: after two seconds the line is dropped. */
	for (int tries = 0; fd >= 0 && write(fd, line, strlen(line)) < 0 && errno == EAGAIN && tries < 200; tries++)
		sleep_ms(10);
	close(fd);
}

bool control_service(const char *service, const char *command)
{
	char path[SERVICE_PATH_SIZE];
	snprintf(path, sizeof path, SERVICES "%s/supervise/control", service);
	int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
	bool sent = fd >= 0 && write(fd, command, strlen(command)) == (ssize_t)strlen(command);
	close(fd);
	return sent;
}

bool service_is(const char *service, const char *wanted)
{
	char path[SERVICE_PATH_SIZE];
	snprintf(path, sizeof path, SERVICES "%s/supervise/stat", service);
	char *state = read_file(path, NULL);
	bool is = state && !strncmp(state, wanted, strlen(wanted));
	free(state);
	return is;
}

pid_t service_process(const char *service)
{
	char path[SERVICE_PATH_SIZE];
	snprintf(path, sizeof path, SERVICES "%s/supervise/pid", service);
	char *text = read_file(path, NULL);
	pid_t pid = text ? atoi(text) : 0;
	free(text);
	return pid > 1 ? pid : 0;
}

bool services_any(bool (*condition)(const char *service))
{
	DIR *services = opendir(SERVICES);
	struct dirent *entry;
	bool found = false;
	while (services && !found && (entry = readdir(services)))
		found = (!strcmp(entry->d_name, "main") || !strncmp(entry->d_name, WORKLOAD_PREFIX, strlen(WORKLOAD_PREFIX))) &&
			condition(entry->d_name);
	if (services)
		closedir(services);
	return found;
}

const char *service_file(const char *service, const char *file)
{
	static char path[SERVICE_PATH_SIZE];
	snprintf(path, sizeof path, SERVICES "%s/%s", service, file);
	return path;
}

bool service_has(const char *service, const char *file)
{
	return !access(service_file(service, file), F_OK);
}

pid_t fork_service(void)
{
	cgroup_sweep(SERVICE_GROUP); /* those of processes that have ended */
	int cgroup = cgroup_create(SERVICE_GROUP);
	pid_t child = cgroup_fork(cgroup);
	if (child && cgroup >= 0)
		close(cgroup);
	return child;
}

pid_t start_supervisor(int niceness)
{
	pid_t child = fork_service();
	if (child)
		return child;
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setsid();
	setpriority(PRIO_PROCESS, 0, niceness);
	/* runsvdir waits a second if its directory changed within the current second, as it did when it was unpacked. */
	struct timespec old[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
	utimensat(AT_FDCWD, KIT "/service", old, 0);
	char *environment[] = {"PATH=" KIT "/bin:" DEFAULT_PATH, NULL};
	execle(KIT "/bin/runsvdir", "runsvdir", KIT "/service", NULL, environment);
	die(EXIT_CANNOT_RUN, "cannot start runsvdir: %s", strerror(errno));
}

void reset_supervisor_priority(pid_t supervisor)
{
	setpriority(PRIO_PGRP, (id_t)supervisor, 0);
}

int enter_main(char **argv)
{
	enter_guest();
	exec_command(argv);
}
