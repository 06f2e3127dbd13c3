/* The user's programs: the main one and the workloads, each a runit service. */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define STARTED "started"

struct program {
	const char *user, *directory;
	bool plain_log; /* without records: both streams are one */
	char environment[KEY_SIZE]; /* key of the program's own variables; empty: none */
	char **argv;
};

/* Takes a lock that ends with the exec or with this process. The final name appears only once the lock is held, so a
 * file of that name without a lock means that the program was started (or could not be). */
static void mark_start(void)
{
	int fd = open("starting", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) || rename("starting", STARTED))
		die(EXIT_CANNOT_RUN, "cannot mark the start: %s", strerror(errno));
}

static bool program_started(const char *service)
{
	char path[SERVICE_PATH_SIZE];
	snprintf(path, sizeof path, SERVICES "%s/" STARTED, service);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	bool started = fd >= 0 && !flock(fd, LOCK_EX | LOCK_NB);
	close(fd);
	return started;
}

static void add_environment(const char *key)
{
	size_t position = 0;
	const char *pair;
	while (*key && (pair = config_next(key, &position)))
		putenv((char *)pair);
}

/* Opened for reading, too: a program whose logger ended gets no broken pipe. */
static void redirect_errors(const struct program *program)
{
	int errors = program->plain_log ? -1 : open("log/" LOG_ERRORS, O_RDWR | O_NONBLOCK);
	if (errors >= 0)
		fcntl(errors, F_SETFL, 0);
	dup2(errors < 0 ? STDOUT_FILENO : errors, STDERR_FILENO);
	if (errors > STDERR_FILENO)
		close(errors);
}

static int start_program(const struct program *program)
{
	setsid();
	set_oom("0");
	redirect_errors(program);
	mark_start();
	enter_guest();
	int input = open("/dev/null", O_RDONLY);
	dup2(input, STDIN_FILENO);
	base_environment();
	add_environment(program->environment);
	if (become_user_in(program->user, *program->directory ? program->directory : "/", ""))
		return EXIT_CANNOT_RUN;
	exec_command(program->argv);
}

int process_main(void)
{
	struct program program = {0};
	if (!config_load(CONFIG_FILE))
		die(EXIT_CANNOT_RUN, "no configuration");
	if (!config_list("cmd", &program.argv) && !config_list("entrypoint", &program.argv))
		die(EXIT_NOT_FOUND, "nothing to start");
	program.user = image_user();
	program.directory = config_get("cwd");
	return start_program(&program);
}

/* What runsv runs in place of SIGTERM, in the directory of the service. Anything but 0: it sends SIGTERM itself. */
int stop_main(void)
{
	pid_t program = service_is("main", "run") ? service_process("main") : 0;
	int number = config_load(CONFIG_FILE) ? atoi(config_get("stop_signal")) : 0;
	return !program || number <= 0 || kill(program, number);
}

const char *workload_get(const char *name, const char *field, const char *otherwise)
{
	char key[KEY_SIZE];
	size_t position = 0;
	snprintf(key, sizeof key, "workload:%s:%s", name, field);
	const char *value = config_next(key, &position);
	return value ? value : otherwise;
}

const char *workload_name(bool of_log)
{
	static char place[SERVICE_PATH_SIZE];
	if (!getcwd(place, sizeof place))
		die(EXIT_CANNOT_RUN, "no directory of the service");
	if (of_log)
		*strrchr(place, '/') = 0;
	const char *service = strrchr(place, '/');
	if (!service || strncmp(service + 1, WORKLOAD_PREFIX, strlen(WORKLOAD_PREFIX)))
		die(EXIT_CANNOT_RUN, "not the directory of a workload: %s", place);
	return service + 1 + strlen(WORKLOAD_PREFIX);
}

int workload_main(void)
{
	struct program program = {0};
	char key[KEY_SIZE];
	const char *name = workload_name(false);
	if (!config_load(CONFIG_FILE))
		die(EXIT_CANNOT_RUN, "no configuration");
	snprintf(key, sizeof key, "workload:%s:cmd", name);
	if (!config_list(key, &program.argv))
		die(EXIT_NOT_FOUND, "nothing to start");
	program.user = workload_get(name, "user", image_user());
	program.directory = workload_get(name, "cwd", config_get("cwd"));
	program.plain_log = *workload_get(name, "log", "");
	snprintf(program.environment, sizeof program.environment, "workload:%s:env", name);
	return start_program(&program);
}

static bool write_script(const char *service, const char *file, const char *applet)
{
	char path[SERVICE_PATH_SIZE], text[128];
	snprintf(path, sizeof path, SERVICES "%s/%s", service, file);
	snprintf(text, sizeof text, "#!" KIT "/bin/guest %s\n", applet);
	return write_file(path, text, strlen(text), 0755);
}

bool write_workload_service(const char *service, bool down)
{
	char path[SERVICE_PATH_SIZE], log[SERVICE_PATH_SIZE], down_file[SERVICE_PATH_SIZE];
	snprintf(path, sizeof path, SERVICES "%s", service);
	snprintf(log, sizeof log, SERVICES "%s/log", service);
	snprintf(down_file, sizeof down_file, SERVICES "%s/down", service);
	return ensure_dir(path, 0755) && (!down || write_file(down_file, "", 0, 0644)) && ensure_dir(log, 0755) &&
	       write_script(service, "finish", "workload-finish") && write_script(service, "log/run", "workload-log") &&
	       write_script(service, "run", "workload");
}

static struct {
	char service[SERVICE_NAME_SIZE];
	bool notified, started;
} *programs;
static size_t programs_count;

static bool prepare_workload(const char *name, char *service)
{
	snprintf(service, SERVICE_NAME_SIZE, WORKLOAD_PREFIX "%s", name);
	if (write_workload_service(service, true))
		return true;
	log_boot("cannot prepare the workload %s: %s", name, strerror(errno));
	return false;
}

bool programs_prepare(void)
{
	if (*config_get("unknown_stop_signal"))
		log_boot("the image's stop signal is not known, SIGTERM is sent: %s", config_get("unknown_stop_signal"));
	char **names;
	size_t count = config_list("workload", &names);
	free(programs);
	programs = calloc(count + 1, sizeof *programs);
	programs_count = 0;
	if (!programs)
		return false;
	if (*config_get("cmd") || *config_get("entrypoint"))
		snprintf(programs[programs_count++].service, SERVICE_NAME_SIZE, "main");
	for (size_t i = 0; i < count; i++)
		programs_count += prepare_workload(names[i], programs[programs_count].service);
	free(names);
	return true;
}

bool programs_wanted(void)
{
	return programs_count > 0;
}

/* The main process, whose exit powers the machine off. */
static bool is_last(const char *service)
{
	return !strcmp(service, "main") && *config_get("cmd");
}

static bool log_is_reading(const char *service)
{
	char path[SERVICE_PATH_SIZE];
	snprintf(path, sizeof path, SERVICES "%s/log/" LOG_READING, service);
	return !access(path, F_OK);
}

/* Waits for the program's logger, up to the deadline: the exit of a short program would otherwise stop the logger before
 * it reads. */
bool programs_start(bool late)
{
	bool all = true;
	for (size_t i = 0; i < programs_count; i++) {
		const char *service = programs[i].service;
		/* Fails while the supervisor is not up. */
		programs[i].notified = programs[i].notified ||
				   ((late || log_is_reading(service)) && control_service(service, is_last(service) ? "o" : "u"));
		all = all && programs[i].notified;
	}
	return all;
}

bool programs_started(void)
{
	bool all = true;
	for (size_t i = 0; i < programs_count; i++) {
		programs[i].started = programs[i].started || program_started(programs[i].service);
		all = all && programs[i].started;
	}
	return all;
}

static bool stop_program(const char *service)
{
	control_service(service, "d");
	return false;
}

void programs_stop(void)
{
	services_any(stop_program);
}

static bool log_runs(const char *service)
{
	char log[SERVICE_PATH_SIZE];
	snprintf(log, sizeof log, "%s/log", service);
	return service_is(log, "run");
}

bool logs_run(void)
{
	return services_any(log_runs);
}

/* A finish script that waits for a restart is not waited for; the one that reports the main process's exit is. */
static bool program_runs(const char *service)
{
	return service_is(service, "run") || (is_last(service) && service_is(service, "finish"));
}

bool programs_run(void)
{
	return services_any(program_runs);
}
