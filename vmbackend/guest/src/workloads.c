/* Workloads of a running machine: `guest workloads list | stats | put NAME | remove NAME | start NAME | stop NAME`.
 *
 * What is changed here lasts until the machine's next start, whose configuration comes from the host. One change at a time
 * has the lock; each may be repeated, also after one that was killed half way.
 */
#define _GNU_SOURCE
#include "guest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOCK KIT "/workloads.lock"
#define STOP_MS 5000 /* from SIGTERM to SIGKILL */
#define KILL_MS 2000
#define SETTLE_MS 500 /* for a finish script that has just started */
#define POLL_MS 20
#define REMOVED "." /* runsvdir passes over names that begin with it */

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

static const char *path_in(const char *service, const char *file)
{
	static char path[SERVICE_PATH_SIZE];
	snprintf(path, sizeof path, SERVICES "%s/%s", service, file);
	return path;
}

static bool has_file(const char *service, const char *file)
{
	return !access(path_in(service, file), F_OK);
}

/* list */

static long number_in(const char *service, const char *file, long otherwise)
{
	char *text = read_file(path_in(service, file), NULL);
	long number = text ? atol(text) : otherwise;
	free(text);
	return number;
}

/* Whether the finish script has begun, and has not written yet what the program's end was. */
static bool is_ending(const char *service)
{
	return service_is(service, "finish") && !has_file(service, WAITING_FILE);
}

static void wait_until_settled(const char *service, long long until)
{
	while (is_ending(service) && now_ms() < until)
		sleep_ms(POLL_MS);
}

static const char *state_of(const char *service)
{
	if (has_file(service, STOPPED_FILE))
		return "stopped";
	if (service_is(service, "run"))
		return "running";
	if (service_is(service, "finish"))
		return "restarting";
	return has_file(service, EXIT_FILE) ? "exited" : "starting";
}

static bool print_state(const char *service)
{
	static long long until; /* of all of them */
	struct stat started;
	if (!strcmp(service, "main"))
		return false;
	until = until ? until : now_ms() + SETTLE_MS;
	wait_until_settled(service, until);
	bool begun = !stat(path_in(service, "started"), &started);
	printf("%s %s %d %ld %ld %lld\n", service + strlen(WORKLOAD_PREFIX), state_of(service),
	       service_is(service, "run") ? (int)service_process(service) : 0, number_in(service, EXIT_FILE, -1),
	       number_in(service, RESTARTS_FILE, 0), begun ? (long long)started.st_mtim.tv_sec : 0);
	return false;
}

static int list_workloads(void)
{
	enter_kit();
	services_any(print_state);
	return fflush(stdout) ? EXIT_CANNOT_RUN : 0;
}

/* stats */

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

static int list_usage(void)
{
	enter_kit();
	services_any(print_usage);
	return fflush(stdout) ? EXIT_CANNOT_RUN : 0;
}

/* stop */

/* Ends a finish script only while it waits for a restart: before, it has not written the exit status. */
static void end_wait(const char *service)
{
	pid_t waiting = service_is(service, "finish") ? service_process(service) : 0;
	if (waiting && has_file(service, WAITING_FILE)) {
		kill(waiting, SIGKILL);
		unlink(path_in(service, WAITING_FILE));
	}
}

static bool wait_until_down(const char *service, long long limit_ms)
{
	for (long long until = now_ms() + limit_ms; now_ms() < until; sleep_ms(POLL_MS)) {
		end_wait(service);
		if (service_is(service, "down"))
			return true;
	}
	return false;
}

/* The program leads a process group, whose members end with it. */
static void stop_service(const char *service)
{
	write_file(path_in(service, STOPPED_FILE), "", 0, 0600);
	write_file(path_in(service, "down"), "", 0, 0644); /* for a supervisor that is not there yet */
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

/* start */

static void start_service(const char *service)
{
	static const char *const OLD[] = {STOPPED_FILE, "down", RESTARTS_FILE, EXIT_FILE};
	wait_until_settled(service, now_ms() + SETTLE_MS); /* which would write them again */
	for (size_t i = 0; i < sizeof OLD / sizeof *OLD; i++)
		unlink(path_in(service, OLD[i]));
	if (service_is(service, "run"))
		return;
	control_service(service, "u"); /* fails while its supervisor is not up, which will start it */
	end_wait(service);
}

/* put and remove: the configuration */

static bool is_of(const char *record, const char *name)
{
	char own[KEY_SIZE], fields[KEY_SIZE];
	snprintf(own, sizeof own, "workload=%s", name);
	snprintf(fields, sizeof fields, "workload:%s:", name);
	return !strcmp(record, own) || !strncmp(record, fields, strlen(fields));
}

/* The records of NAME, or all others; malloc'ed. */
static char *filter_records(const char *all, size_t all_size, const char *name, bool own, size_t *size)
{
	char *found = malloc(all_size + CONFIG_MAX + 1);
	*size = 0;
	if (!found)
		die(EXIT_CANNOT_RUN, "out of memory");
	for (size_t position = 0; position < all_size; position += strlen(all + position) + 1) {
		if (is_of(all + position, name) != own)
			continue;
		memcpy(found + *size, all + position, strlen(all + position) + 1);
		*size += strlen(all + position) + 1;
	}
	return found;
}

static void replace_records(const char *name, const char *records, size_t size)
{
	size_t all_size, others_size;
	char *all = read_file(CONFIG_FILE, &all_size);
	if (!all)
		die(EXIT_CANNOT_RUN, "no configuration");
	char *others = filter_records(all, all_size, name, false, &others_size);
	if (others_size + size > CONFIG_MAX)
		die(EXIT_CANNOT_RUN, "the machine's configuration would be larger than %d bytes", CONFIG_MAX);
	memcpy(others + others_size, records, size);
	/* Programs that start at this moment read the old one or the new one. */
	if (!write_file(CONFIG_FILE ".new", others, others_size + size, 0600) || rename(CONFIG_FILE ".new", CONFIG_FILE))
		die(EXIT_CANNOT_RUN, "cannot write the configuration: %s", strerror(errno));
	free(others);
	free(all);
}

static bool is_unchanged(const char *name, const char *records, size_t size)
{
	size_t all_size, own_size;
	char *all = read_file(CONFIG_FILE, &all_size);
	char *own = all ? filter_records(all, all_size, name, true, &own_size) : NULL;
	bool same = own && own_size == size && !memcmp(own, records, size);
	free(own);
	free(all);
	return same;
}

static void require_records(const char *name, const char *records, size_t size)
{
	if (!size || records[size - 1])
		die(EXIT_CANNOT_RUN, "the records of the workload are cut off");
	for (size_t position = 0; position < size; position += strlen(records + position) + 1)
		if (!is_of(records + position, name))
			die(EXIT_CANNOT_RUN, "a record is not one of the workload");
}

/* put and remove: the service */

static void remove_folder(const char *service)
{
	empty_folder(path_in(service, ""));
	rmdir(path_in(service, ""));
}

static bool has_supervisor(const char *service)
{
	int fd = open(path_in(service, "supervise/ok"), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
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
	if (rename(path_in(service, ""), path) && errno != ENOENT)
		die(EXIT_CANNOT_RUN, "cannot remove the workload: %s", strerror(errno));
	control_service(removed, "x");
	for (long long until = now_ms() + KILL_MS; has_supervisor(removed) && now_ms() < until; sleep_ms(POLL_MS))
		;
	remove_folder(removed);
}

static bool is_missing(const char *service)
{
	return access(path_in(service, "run"), F_OK);
}

static void put_workload(const char *name, const char *service)
{
	size_t size;
	char *records = read_input(&size);
	require_records(name, records, size);
	if (is_unchanged(name, records, size) && !is_missing(service))
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
