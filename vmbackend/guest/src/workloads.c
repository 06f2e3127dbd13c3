/* Workloads of a running machine: `guest workloads list | stats | put NAME | remove NAME | start NAME | stop NAME`.
 *
 * What is changed here lasts until the machine's next start, whose configuration comes from the host. One change at a time
 * has the lock; each may be repeated, also after one that was killed half way.
 */
#define _GNU_SOURCE
#include "guest.h"
#include "workload_records.h"
#include "workload_states.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK KIT "/workloads.lock"
#define STOP_MS 5000 /* from SIGTERM to SIGKILL */
#define KILL_MS 2000
#define REMOVED "." /* runsvdir passes over names that begin with it */

/* Ends a finish script only while it waits for a restart: before, it has not written the exit status. */
static void end_wait(const char *service)
{
	pid_t waiting = service_is(service, "finish") ? service_process(service) : 0;
	if (waiting && service_has(service, WAITING_FILE)) {
		kill(waiting, SIGKILL);
		unlink(service_file(service, WAITING_FILE));
	}
}

static bool wait_until_down(const char *service, long long limit_ms)
{
	for (long long until = now_ms() + limit_ms; now_ms() < until; sleep_ms(WORKLOAD_POLL_MS)) {
		end_wait(service);
		if (service_is(service, "down"))
			return true;
	}
	return false;
}

/* The program leads a process group, whose members end with it. */
static void stop_service(const char *service)
{
	write_file(service_file(service, STOPPED_FILE), "", 0, 0600);
	write_file(service_file(service, "down"), "", 0, 0644); /* for a supervisor that is not there yet */
	pid_t program = service_is(service, "run") ? service_process(service) : 0;
	if (!control_service(service, "d"))
		return;
	if (program)
		kill(-program, SIGTERM);
	bool down = wait_until_down(service, STOP_MS);
	if (program)
		kill(-program, SIGKILL);
	if (!down && !wait_until_down(service, KILL_MS))
		die(EXIT_CANNOT_RUN, "the workload does not end");
}

static void start_service(const char *service)
{
	static const char *const OLD[] = {STOPPED_FILE, "down", RESTARTS_FILE, EXIT_FILE};
	workload_settle(service, now_ms() + WORKLOAD_SETTLE_MS); /* which would write them again */
	for (size_t i = 0; i < sizeof OLD / sizeof *OLD; i++)
		unlink(service_file(service, OLD[i]));
	if (service_is(service, "run"))
		return;
	control_service(service, "u"); /* fails while its supervisor is not up, which will start it */
	end_wait(service);
}

static void remove_folder(const char *service)
{
	empty_folder(service_file(service, ""));
	rmdir(service_file(service, ""));
}

static bool has_supervisor(const char *service)
{
	int fd = open(service_file(service, "supervise/ok"), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
	close(fd);
	return fd >= 0;
}

/* Out of runsvdir's sight first, which would start its supervisor again. */
static void remove_service(const char *service)
{
	char removed[SERVICE_NAME_SIZE + 1], path[SERVICE_PATH_SIZE];
	snprintf(removed, sizeof removed, REMOVED "%s", service);
	remove_folder(removed);
	snprintf(path, sizeof path, SERVICES "%s", removed);
	if (rename(service_file(service, ""), path) && errno != ENOENT)
		die(EXIT_CANNOT_RUN, "cannot remove the workload: %s", strerror(errno));
	control_service(removed, "x");
	for (long long until = now_ms() + KILL_MS; has_supervisor(removed) && now_ms() < until; sleep_ms(WORKLOAD_POLL_MS))
		;
	remove_folder(removed);
}

static bool is_missing(const char *service)
{
	return access(service_file(service, "run"), F_OK);
}

static void put_workload(const char *name, const char *service)
{
	size_t size;
	char *records = read_input(&size);
	require_records(name, records, size);
	if (records_unchanged(name, records, size) && !is_missing(service))
		return;
	if (!is_missing(service))
		stop_service(service);
	replace_records(name, records, size);
	if (is_missing(service)) {
		remove_service(service); /* what a change that was killed has left */
		if (!write_workload_service(service, false))
			die(EXIT_CANNOT_RUN, "cannot make the workload: %s", strerror(errno));
		return;
	}
	char log[SERVICE_NAME_SIZE + 8];
	snprintf(log, sizeof log, "%s/log", service);
	control_service(log, "k"); /* its place may be another one now */
	start_service(service);
}

static void remove_workload(const char *name, const char *service)
{
	if (!is_missing(service))
		stop_service(service);
	replace_records(name, "", 0);
	remove_service(service);
}

static void require_service(const char *service)
{
	if (is_missing(service))
		die(EXIT_NOT_FOUND, "the machine has no such workload");
}

static void begin_change(void)
{
	enter_kit();
	int fd = open(LOCK, O_RDWR | O_CREAT | O_CLOEXEC, 0600); /* until this process ends */
	if (fd < 0 || flock(fd, LOCK_EX))
		die(EXIT_CANNOT_RUN, "cannot lock the workloads: %s", strerror(errno));
}

static bool is_name(const char *name)
{
	return *name && *name != '.' && strlen(name) <= 64 && !strchr(name, '/');
}

int workloads_main(int argc, char **argv)
{
	char service[SERVICE_NAME_SIZE];
	if (argc == 1 && !strcmp(argv[0], "list"))
		return list_workloads();
	if (argc == 1 && !strcmp(argv[0], "stats"))
		return list_usage();
	if (argc != 2 || !is_name(argv[1]))
		die(EXIT_CANNOT_RUN, "usage: guest workloads list | stats | put NAME | remove NAME | start NAME | stop NAME");
	snprintf(service, sizeof service, WORKLOAD_PREFIX "%s", argv[1]);
	begin_change();
	if (!strcmp(argv[0], "put")) {
		put_workload(argv[1], service);
		return 0;
	}
	if (!strcmp(argv[0], "remove")) {
		remove_workload(argv[1], service);
		return 0;
	}
	require_service(service);
	if (!strcmp(argv[0], "start"))
		start_service(service);
	else
		stop_service(service);
	return 0;
}
