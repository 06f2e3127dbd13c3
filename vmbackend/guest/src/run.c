/* `guest run`: one command with environment, directory, user and deadline, in its own process group. */
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

struct request {
	const char *directory, *user;
	double timeout; /* seconds; 0: none */
	bool terminal;
	char **environment;
	size_t environment_size;
	char **command;
};

static const struct option OPTIONS[] = {
	{"env", required_argument, NULL, 'e'},     {"cwd", required_argument, NULL, 'd'},
	{"user", required_argument, NULL, 'u'},    {"timeout", required_argument, NULL, 't'},
	{"stdin-args", required_argument, NULL, 's'}, {"tty", no_argument, NULL, 'T'},
	{NULL, 0, NULL, 0},
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
			terminal_begin_arguments();
			argc = read_arguments(strtoul(optarg, NULL, 10), &argv);
			terminal_end_arguments();
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
		else if (option == 'T')
			request->terminal = true;
		else
			die(EXIT_CANNOT_RUN, "usage: guest run [--env K=V] [--cwd DIR] [--user U[:G]] [--timeout S] [--tty] -- COMMAND");
	}
	request->command = argv + optind;
	if (!*request->command && !request->terminal)
		die(EXIT_CANNOT_RUN, "no command");
}

static void set_environment(const struct request *request, const char *terminal)
{
	base_environment();
	if (terminal)
		setenv("TERM", terminal, 1);
	for (size_t i = 0; i < request->environment_size; i++)
		putenv(request->environment[i]);
}

static void start_command(const struct request *request, const sigset_t *original)
{
	setpgid(0, 0);
	if (isatty(STDIN_FILENO)) {
		signal(SIGTTOU, SIG_IGN); /* tcsetpgrp from a background group raises it */
		tcsetpgrp(STDIN_FILENO, getpid());
		signal(SIGTTOU, SIG_DFL);
	}
	sigprocmask(SIG_SETMASK, original, NULL);
	if (become_user(request->user ? request->user : "root"))
		_exit(EXIT_CANNOT_RUN);
	const char *directory = request->directory ? request->directory : getenv("HOME");
	/* A requested directory must exist; the home of an image's user often does not. */
	if (chdir(directory) && (request->directory || chdir("/")))
		die(EXIT_CANNOT_RUN, "cannot enter %s: %s", directory, strerror(errno));
	if (request->terminal)
		terminal_exec(request->command);
	exec_command(request->command);
}

static int exit_code(int status)
{
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int poll_time(long long until)
{
	long long rest = until ? until - now_ms() : -1;
	if (!until)
		return -1;
	return rest < 0 ? 0 : rest > 1000000 ? 1000000 : (int)rest;
}

/* Returns when the command exits, at the deadline, or when the reader of the output is gone (client disconnected). */
static int supervise(pid_t child, int signals, double timeout, bool terminal)
{
	struct signalfd_siginfo info;
	int status;
	long long until = timeout > 0 ? now_ms() + (long long)(timeout * 1000) : 0;
	struct pollfd sources[] = {{.fd = signals, .events = POLLIN}, {.fd = STDOUT_FILENO}};
	for (;;) {
		int wait = poll_time(until);
		if (!poll(sources, 2, wait) && until && now_ms() >= until) {
			kill(-child, SIGKILL);
			waitpid(child, &status, 0);
			return EXIT_TIMEOUT;
		}
		if (sources[1].revents & (POLLERR | POLLHUP | POLLNVAL)) {
			kill(-child, SIGKILL);
			sources[1].fd = -1;
		}
		if (!(sources[0].revents & POLLIN) || read(signals, &info, sizeof info) != sizeof info)
			continue;
		if (info.ssi_signo != SIGCHLD)
			kill(-child, info.ssi_signo == SIGHUP ? SIGKILL : (int)info.ssi_signo);
		if (waitpid(child, &status, WNOHANG) == child) {
			if (terminal && WIFSIGNALED(status))
				terminal_exit_by_signal(WTERMSIG(status));
			return exit_code(status);
		}
	}
}

int run_main(int argc, char **argv)
{
	struct request request = {0};
	sigset_t wanted, original;
	parse(argc, argv, &request);
	config_load(CONFIG_FILE);
	const char *terminal = getenv("TERM");
	set_environment(&request, terminal ? strdup(terminal) : NULL);
	sigemptyset(&wanted);
	for (const int *number = (const int[]){SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, 0}; *number; number++)
		sigaddset(&wanted, *number);
	sigprocmask(SIG_BLOCK, &wanted, &original);
	pid_t child = fork();
	if (!child)
		start_command(&request, &original);
	if (child < 0)
		die(EXIT_CANNOT_RUN, "cannot fork: %s", strerror(errno));
	setpgid(child, child); /* in parent and child, so that the group exists in either order */
	/* Background processes of the group may keep stdout open; this process must not. */
	return supervise(child, signalfd(-1, &wanted, SFD_CLOEXEC), request.timeout, request.terminal);
}
