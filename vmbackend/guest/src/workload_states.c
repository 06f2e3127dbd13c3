/* The states of a running machine's workloads, and the time and memory that they take. */
#define _GNU_SOURCE
#include "workload_states.h"

#include "guest.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static long number_in(const char *service, const char *file, long otherwise)
{
	char *text = read_file(service_file(service, file), NULL);
	long number = text ? atol(text) : otherwise;
	free(text);
	return number;
}

/* Whether the finish script has begun, and has not written yet what the program's end was. */
static bool is_ending(const char *service)
{
	return service_is(service, "finish") && !service_has(service, WAITING_FILE);
}

void workload_settle(const char *service, long long until)
{
	while (is_ending(service) && now_ms() < until)
		sleep_ms(WORKLOAD_POLL_MS);
}

static const char *state_of(const char *service)
{
	if (service_has(service, STOPPED_FILE))
		return "stopped";
	if (service_is(service, "run"))
		return "running";
	if (service_is(service, "finish"))
		return "restarting";
	return service_has(service, EXIT_FILE) ? "exited" : "starting";
}

static bool print_state(const char *service)
{
	static long long until; /* of all of them */
	struct stat started;
	if (!strcmp(service, "main"))
		return false;
	until = until ? until : now_ms() + WORKLOAD_SETTLE_MS;
	workload_settle(service, until);
	bool begun = !stat(service_file(service, "started"), &started);
	printf("%s %s %d %ld %ld %lld\n", service + strlen(WORKLOAD_PREFIX), state_of(service),
	       service_is(service, "run") ? (int)service_process(service) : 0, number_in(service, EXIT_FILE, -1),
	       number_in(service, RESTARTS_FILE, 0), begun ? (long long)started.st_mtim.tv_sec : 0);
	return false;
}

int list_workloads(void)
{
	enter_kit();
	services_any(print_state);
	return fflush(stdout) ? EXIT_CANNOT_RUN : 0;
}

struct usage {
	pid_t session;
	unsigned long long ticks, pages;
	unsigned long long started; /* of its first process, in ticks since the boot */
};

/* The 20 fields after the name, which may contain anything but ends with the last parenthesis: proc_pid_stat(5). */
static void add_process(const char *line, pid_t pid, struct usage *usage)
{
	unsigned long long user, system, of_children, of_children_system, started, pages;
	int session;
	const char *rest = strrchr(line, ')');
	if (!rest || sscanf(rest + 1, " %*c %*d %*d %d %*d %*d %*u %*u %*u %*u %*u %llu %llu %llu %llu %*d %*d %*d %*d %llu %*u %llu",
			    &session, &user, &system, &of_children, &of_children_system, &started, &pages) != 7)
		return;
	if (session != usage->session)
		return;
	usage->ticks += user + system + of_children + of_children_system;
	usage->pages += pages;
	if (pid == session)
		usage->started = started;
}

/* A program leads a session: what it has started belongs to it, unless it began a session of its own. */
static void measure_session(struct usage *usage)
{
	char path[64];
	DIR *processes = opendir("/proc");
	struct dirent *entry;
	while (processes && (entry = readdir(processes))) {
		pid_t pid = atoi(entry->d_name);
		snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
		char *line = pid > 0 ? read_file(path, NULL) : NULL;
		if (line)
			add_process(line, pid, usage);
		free(line);
	}
	if (processes)
		closedir(processes);
}

/* Milliseconds since the boot, also those asleep: what starts of processes are counted in. */
static long long since_boot(void)
{
	struct timespec now;
	clock_gettime(CLOCK_BOOTTIME, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static bool print_usage(const char *service)
{
	struct usage usage = {.session = service_is(service, "run") ? service_process(service) : 0};
	long long tick = 1000 / sysconf(_SC_CLK_TCK), alive = 0;
	if (!strcmp(service, "main"))
		return false;
	if (usage.session)
		measure_session(&usage);
	if (usage.started)
		alive = since_boot() - (long long)usage.started * tick;
	printf("%s %d %lld %lld %llu\n", service + strlen(WORKLOAD_PREFIX), usage.started ? (int)usage.session : 0,
	       alive > 0 ? alive : 0, (long long)usage.ticks * tick, usage.pages * (unsigned long long)sysconf(_SC_PAGESIZE));
	return false;
}

int list_usage(void)
{
	enter_kit();
	services_any(print_usage);
	return fflush(stdout) ? EXIT_CANNOT_RUN : 0;
}
