/* Starts the programs of terminals, each in a session of its own, and of commands: in the user's file system. */
#define _GNU_SOURCE
#include "hold_start.h"

#include "guest.h"
#include "hold_state.h"
#include "hold_task_table.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#ifndef TIOCGPTPEER
#define TIOCGPTPEER _IO('T', 0x41)
#endif
#define TERMINAL_TYPE "xterm-256color" /* part of every image with a terminal database */

static void set_environment(char **environment, const char *terminal_type)
{
	base_environment();
	if (terminal_type)
		setenv("TERM", terminal_type, 1);
	for (; *environment; environment++)
		if (strchr(*environment, '='))
			putenv(*environment);
}

static void reset_signals(void)
{
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	for (int number = 1; number < NSIG; number++)
		signal(number, SIG_DFL);
}

static void exec_any_shell(void)
{
	exec_shell(getpwuid(getuid()), NULL);
	setenv("SHELL", KIT "/bin/busybox", 1);
	execl(KIT "/bin/busybox", "sh", NULL);
	execl("/bin/sh", "sh", NULL);
}

/* What fails is written to standard error, and ends the process. */
static void enter_user(const struct start *start, const char *terminal_type)
{
	set_oom("0");
	config_load(CONFIG_FILE); /* the machine may have been given another one since the hold started */
	enter_guest();
	restore_dev_null();
	set_environment(start->environment, terminal_type);
	const char *user = *start->user ? start->user : image_user(), *directory = *start->directory ? start->directory : NULL;
	if (become_user_in(user, directory, config_get("cwd")))
		_exit(EXIT_CANNOT_RUN);
}

/* What fails until the program runs is written to REPORT, which its start closes. */
static void run_program(const struct start *start, int slave, int report)
{
	reset_signals();
	setsid();
	ioctl(slave, TIOCSCTTY, 0);
	dup2(slave, STDIN_FILENO);
	dup2(slave, STDOUT_FILENO);
	dup2(report, STDERR_FILENO);
	enter_user(start, TERMINAL_TYPE);
	dup2(slave, STDERR_FILENO);
	if (*start->command)
		execvp(*start->command, start->command);
	else
		exec_any_shell();
	dprintf(report, "guest: cannot start %s: %s\n", *start->command ? *start->command : "a shell", strerror(errno));
	_exit(EXIT_NOT_FOUND);
}

/* Its input is a pipe that has ended, as over SSH: there are programs that read a pipe, and nothing else. */
void command_exec(const struct start *start, int out, int err)
{
	int input[2];
	reset_signals();
	setpgid(0, 0);
	dup2(out, STDOUT_FILENO);
	dup2(err, STDERR_FILENO);
	if (pipe2(input, O_CLOEXEC) || dup2(input[0], STDIN_FILENO) < 0)
		die(EXIT_CANNOT_RUN, "cannot make its input: %s", strerror(errno));
	close(input[1]);
	enter_user(start, NULL);
	exec_command(start->command);
}

/* As that of a terminal, with pipes. */
static void run_task(const struct start *start, int pipes[3][2], int report)
{
	reset_signals();
	setpgid(0, 0);
	dup2(pipes[0][0], STDIN_FILENO);
	dup2(pipes[1][1], STDOUT_FILENO);
	dup2(report, STDERR_FILENO);
	enter_user(start, NULL);
	dup2(pipes[2][1], STDERR_FILENO);
	execvp(*start->command, start->command);
	int error = errno;
	dprintf(report, "guest: cannot start %s: %s\n", *start->command, strerror(error));
	_exit(error == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN);
}

static void close_pipes(int pipes[4][2])
{
	for (int i = 0; i < 4; i++)
		for (int end = 0; end < 2; end++)
			if (pipes[i][end] >= 0)
				close(pipes[i][end]);
}

/* Takes the ends of the pipes that are the hold's. */
static void keep_ends(struct task *task, int pipes[4][2])
{
	int *ends[] = {&pipes[0][1], &pipes[1][0], &pipes[2][0], &pipes[3][0]};
	int *places[] = {&task->input.fd, &task->outputs[0].fd, &task->outputs[1].fd, &task->starting};
	for (int i = 0; i < 4; i++) {
		fcntl(*ends[i], F_SETFL, O_NONBLOCK);
		*places[i] = *ends[i];
		*ends[i] = -1;
	}
}

bool task_start(struct task *task, const struct start *start)
{
	int pipes[4][2] = {{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}};
	bool made = true;
	for (int i = 0; i < 4 && made; i++)
		made = !pipe2(pipes[i], O_CLOEXEC);
	task->cgroup = made ? cgroup_create('k') : -1;
	pid_t pid = made ? cgroup_fork(task->cgroup) : -1;
	if (!pid)
		run_task(start, pipes, pipes[3][1]);
	int error = errno;
	if (pid > 0) {
		setpgid(pid, pid); /* in parent and child, so that the group exists in either order */
		keep_ends(task, pipes);
		task->pid = task->shown_pid = pid;
	} else {
		cgroup_remove(task->cgroup);
		task->cgroup = -1;
	}
	close_pipes(pipes);
	errno = error;
	return pid > 0;
}

static int open_master(const struct start *start, int *slave)
{
	struct winsize size = {.ws_col = start->cols, .ws_row = start->rows};
	int unlocked = 0, master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	if (master < 0)
		return -1;
	*slave = -1;
	if (!ioctl(master, TIOCSPTLCK, &unlocked) && !ioctl(master, TIOCSWINSZ, &size))
		*slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (*slave >= 0)
		return master;
	close(master);
	return -1;
}

bool terminal_start(struct terminal *terminal, const struct start *start)
{
	int report[2], slave = -1;
	if (pipe2(report, O_CLOEXEC))
		return false;
	terminal->master = open_master(start, &slave);
	terminal->cgroup = cgroup_create('t');
	terminal->pid = terminal->master < 0 ? -1 : cgroup_fork(terminal->cgroup);
	if (!terminal->pid)
		run_program(start, slave, report[1]);
	int error = errno;
	close(report[1]);
	if (terminal->master >= 0)
		close(slave);
	fcntl(report[0], F_SETFL, O_NONBLOCK);
	terminal->starting = report[0];
	terminal->cols = start->cols;
	terminal->rows = start->rows;
	errno = error;
	if (terminal->pid > 0)
		return true;
	terminal->pid = 0;
	return false;
}
