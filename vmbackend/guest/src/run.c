/* `guest run`: one command with environment, directory, user and deadline, in its own process group and cgroup. What it
 * leaves in the background after an ordinary end lives on. */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_STDIN_ARGS (8 << 20)
#define LAST_MS 200 /* for the kernel to end what was killed */
#define PAUSE_MS 10

struct request {
	const char *directory;
	const char *user; /* empty: the image's; with any user its working directory is the usual one */
	double timeout; /* seconds; 0: none */
	double grace;   /* seconds between SIGTERM and SIGKILL where it is ended; 0: only SIGKILL */
	const char *ask; /* a folder; see ask.c */
	char **environment;
	size_t environment_size;
	char **command;
};

static const struct option OPTIONS[] = {
	{"env", required_argument, NULL, 'e'},     {"cwd", required_argument, NULL, 'd'},
	{"user", required_argument, NULL, 'u'},    {"timeout", required_argument, NULL, 't'},
	{"stdin-args", required_argument, NULL, 's'}, {"grace", required_argument, NULL, 'g'},
	{"ask", required_argument, NULL, 'a'},     {NULL, 0, NULL, 0},
};

/* The first SIZE bytes of stdin are NUL-terminated arguments: SSH servers limit the length of a command line. */
static int read_arguments(size_t size, char ***argv)
{
	char *data = size && size <= MAX_STDIN_ARGS ? malloc(size) : NULL;
	for (size_t used = 0; data && used < size;) {
		ssize_t got = read(STDIN_FILENO, data + used, size - used);
		if (got <= 0)
			die(EXIT_CANNOT_RUN, "stdin ended within the arguments");
		used += (size_t)got;
	}
	if (!data || data[size - 1])
		die(EXIT_CANNOT_RUN, "bad argument block");
	int count = 1;
	for (size_t i = 0; i < size; i++)
		count += !data[i];
	*argv = calloc((size_t)count + 1, sizeof **argv);
	if (!*argv)
		die(EXIT_CANNOT_RUN, "out of memory");
	(*argv)[0] = "run";
	for (int i = 1; i < count; i++, data += strlen(data) + 1)
		(*argv)[i] = data;
	return count;
}

static void parse(int argc, char **argv, struct request *request)
{
	int option;
	request->environment = calloc((size_t)argc, sizeof(char *));
	while ((option = getopt_long(argc, argv, "+", OPTIONS, NULL)) != -1) {
		if (option == 's') {
			argc = read_arguments(strtoul(optarg, NULL, 10), &argv);
			free(request->environment);
			*request = (struct request){0};
			optind = 0; /* start over on the new list */
			parse(argc, argv, request);
			return;
		}
		if (option == 'e' && strchr(optarg, '='))
			request->environment[request->environment_size++] = optarg;
		else if (option == 'd')
			request->directory = optarg;
		else if (option == 'u')
			request->user = optarg;
		else if (option == 't')
			request->timeout = strtod(optarg, NULL);
		else if (option == 'g')
			request->grace = strtod(optarg, NULL);
		else if (option == 'a')
			request->ask = optarg;
		else
			die(EXIT_CANNOT_RUN, "usage: guest run [--env K=V] [--cwd DIR] [--user U[:G]] [--timeout S] [--grace S] [--ask DIR] -- COMMAND");
	}
	request->command = argv + optind;
	if (!*request->command)
		die(EXIT_CANNOT_RUN, "no command");
}

static void set_environment(const struct request *request)
{
	base_environment();
	for (size_t i = 0; i < request->environment_size; i++)
		putenv(request->environment[i]);
}

static void start_command(const struct request *request, const sigset_t *original)
{
	setpgid(0, 0);
	sigprocmask(SIG_SETMASK, original, NULL);
	/* The platform's own commands name no user: they are root's, in root's home. */
	const char *user = request->user ? request->user : "root";
	if (become_user_in(*user ? user : image_user(), request->directory, request->user ? config_get("cwd") : ""))
		_exit(EXIT_CANNOT_RUN);
	if (request->ask)
		ask_detach();
	exec_command(request->command);
}

struct course {
	pid_t child;
	int cgroup;
	long long until; /* its deadline, then the end of its grace; 0: none */
	long long grace; /* milliseconds */
	bool ending, late;
};

static int poll_time(long long until)
{
	long long rest = until ? until - now_ms() : -1;
	if (!until)
		return -1;
	return rest < 0 ? 0 : rest > 1000000 ? 1000000 : (int)rest;
}

/* Also what left the group. */
static void kill_all(struct course *course)
{
	course->until = 0;
	kill(-course->child, SIGKILL);
	cgroup_kill(course->cgroup);
}

/* With a grace it gets SIGTERM first, upon which git, for one, removes its lock files. */
static void end_command(struct course *course)
{
	if (course->ending)
		return;
	course->ending = true;
	if (!course->grace) {
		kill_all(course);
		return;
	}
	course->until = now_ms() + course->grace;
	kill(-course->child, SIGTERM);
}

static void check_time(struct course *course)
{
	if (!course->until || now_ms() < course->until)
		return;
	if (course->ending) {
		kill_all(course);
		return;
	}
	course->late = true;
	end_command(course);
}

static void handle_signal(struct course *course, int signals)
{
	struct signalfd_siginfo info;
	if (read(signals, &info, sizeof info) != sizeof info)
		return;
	if (info.ssi_signo == SIGHUP)
		end_command(course);
	else if (info.ssi_signo != SIGCHLD)
		kill(-course->child, (int)info.ssi_signo);
}

static int exit_code(const struct course *course, int status)
{
	if (course->ending && !cgroup_kill(course->cgroup))
		kill(-course->child, SIGKILL); /* what is left of it */
	if (course->late)
		return EXIT_TIMEOUT;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Returns when the command exits: by itself, at its deadline, or because the reader of the output is gone. */
static int supervise(struct course *course, int signals)
{
	int status;
	struct pollfd sources[2 + ASK_SOURCES] = {{.fd = signals, .events = POLLIN}, {.fd = STDOUT_FILENO}};
	for (;;) {
		size_t asking = ask_sources(sources + 2);
		sources[0].revents = sources[1].revents = 0;
		if (poll(sources, 2 + asking, poll_time(course->until)) > 0 && asking)
			ask_handle(sources + 2);
		check_time(course);
		if (sources[1].revents & (POLLERR | POLLHUP | POLLNVAL)) {
			end_command(course);
			sources[1].fd = -1;
		}
		if (sources[0].revents & POLLIN)
			handle_signal(course, signals);
		if (waitpid(course->child, &status, WNOHANG) == course->child)
			return exit_code(course, status);
	}
}

static long long milliseconds(double seconds)
{
	return seconds > 0 ? (long long)(seconds * 1000) : 0;
}

int run_main(int argc, char **argv)
{
	struct request request = {0};
	sigset_t wanted, original;
	parse(argc, argv, &request);
	config_load(CONFIG_FILE);
	set_environment(&request);
	sigemptyset(&wanted);
	for (const int *number = (const int[]){SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, 0}; *number; number++)
		sigaddset(&wanted, *number);
	sigprocmask(SIG_BLOCK, &wanted, &original);
	if (request.ask)
		ask_open(request.ask);
	int cgroup = cgroup_create('r');
	pid_t child = cgroup_fork(cgroup);
	if (!child)
		start_command(&request, &original);
	if (child < 0) {
		ask_close();
		die(EXIT_CANNOT_RUN, "cannot fork: %s", strerror(errno));
	}
	setpgid(child, child); /* in parent and child, so that the group exists in either order */
	if (request.ask)
		ask_start(cgroup);
	/* Background processes of the group may keep stdout open; this process must not. */
	struct course course = {.child = child, .cgroup = cgroup, .grace = milliseconds(request.grace)};
	course.until = milliseconds(request.timeout) ? now_ms() + milliseconds(request.timeout) : 0;
	int code = supervise(&course, signalfd(-1, &wanted, SFD_CLOEXEC));
	ask_close();
	/* What was killed ends a moment later, and its group can be removed then. */
	for (int left = course.ending ? LAST_MS / PAUSE_MS : 0; left > 0 && !cgroup_is_empty(cgroup); left--)
		sleep_ms(PAUSE_MS);
	cgroup_sweep('r');
	return code;
}
