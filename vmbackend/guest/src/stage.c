/* The only child of tini: runs the SSH servers and runsvdir, reports `ready`, and powers the machine off in order.
 *
 * It lives as long as the machine: if it exited, tini would exit and the kernel would panic. It therefore performs the
 * last steps of a power-off itself, instead of a child that its own signals would kill.
 */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/reboot.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define READY_POLL_MS 2 /* one file access */
#define START_POLL_MS 10
#define REQUESTS_PAUSE_MS 1000
#define MAX_BUTTONS 8

enum { SIGNALS, REQUESTS, BUTTONS }; /* what is polled, in this order */

/* The steps: SSH servers, `ready`, runit with the agent, programs; `ready` comes last with `wait_for_init`. */
struct start {
	bool answered; /* the SSH servers listen, or their deadline passed */
	bool level;    /* runit and the agent run with normal priority */
	bool notified;     /* every program's supervisor has its command */
	bool announced;
	pid_t supervisor; /* not started unless positive */
	long long until;  /* of the present step */
};

/* What busybox's and sysvinit's poweroff, halt and reboot send to PID 1; tini forwards it. */
static void handle_signal(int fd, struct start *start)
{
	struct signalfd_siginfo info;
	if (read(fd, &info, sizeof info) != sizeof info)
		return;
	if (info.ssi_signo == SIGUSR1 || info.ssi_signo == SIGUSR2)
		end_machine(RB_POWER_OFF);
	if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT)
		end_machine(RB_AUTOBOOT);
	pid_t ended;
	while ((ended = waitpid(-1, NULL, WNOHANG)) > 0) {
		server_ended(ended);
		if (ended == start->supervisor) {
			sleep_ms(100); /* limits the restart rate */
			start->supervisor = start_supervisor(0);
		}
	}
}

/* SIGHUP: the users' SSH was switched; it only interrupts the poll. */
static int block_signals(void)
{
	sigset_t wanted;
	sigemptyset(&wanted);
	for (const int *number = (const int[]){SIGCHLD, SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP, 0}; *number; number++)
		sigaddset(&wanted, *number);
	sigprocmask(SIG_BLOCK, &wanted, NULL);
	return signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
}

static bool is_starting(const struct start *start)
{
	return !start->notified || !start->announced;
}

static void announce(struct start *start)
{
	start->announced = true;
	log_boot("ready");
	send_event("ready\n");
	write_file(READY_FILE, "", 0, 0644);
	remove_partials();
}

static bool advance_servers(struct start *start)
{
	if (!servers_ready() && now_ms() < start->until)
		return false;
	start->until = now_ms() + AGENT_WAIT_MS;
	if (!*config_get("wait_for_init"))
		announce(start);
	return true;
}

/* runit and the agent start before the user's programs, which may take all the CPU. Without such programs they start with
 * the lowest priority, so that the first command of a client that waited for `ready` does not compete with them. */
static bool advance_agent(struct start *start)
{
	if (start->supervisor <= 0)
		start->supervisor = start_supervisor(start->announced && !programs_wanted() ? LOWEST_PRIORITY : 0);
	if (!agent_ready() && now_ms() < start->until)
		return false;
	reset_supervisor_priority(start->supervisor);
	start->until = now_ms() + INIT_WAIT_MS;
	return true;
}

/* Advances the start where possible. Every step has a deadline: a kit whose agent or SSH never comes up must still start
 * the user's programs, and a program that hangs at its start must not delay `ready` for ever. */
static void advance(struct start *start)
{
	start->answered = start->answered || advance_servers(start);
	start->level = start->level || (start->answered && advance_agent(start));
	if (!start->level)
		return;
	bool late = now_ms() > start->until;
	if (!start->notified)
		start->notified = programs_start(late) || late;
	if (start->notified && !start->announced && (programs_started() || late))
		announce(start);
}

/* What a boot does from here on is done again: with the servers, the agent and runit that run, and the programs of the new
 * configuration. runsvdir looks for services every five seconds; it waits one more if they are of the present second. */
static void restart(struct start *start)
{
	struct timespec old[2] = {{.tv_sec = 2}, {.tv_sec = 2}};
	utimensat(AT_FDCWD, SERVICES, old, 0);
	unlink(READY_FILE);
	*start = (struct start){.supervisor = start->supervisor, .until = now_ms() + SERVICES_WAIT_MS};
}

/* The port appears while the machine starts. Without a host at its other end it polls as ready without data: then it is
 * not polled for a while. Returns milliseconds until the next call, or -1. */
static int poll_requests(struct pollfd *source, struct start *start)
{
	static long long paused_until;
	static int fd = -1;
	if (fd < 0 && is_starting(start))
		source->fd = fd = open_requests();
	if (source->fd >= 0 && source->revents) {
		fd = source->fd;
		enum handled handled = handle_requests(fd);
		if (handled == NOTHING_READ) {
			source->fd = -1;
			paused_until = now_ms() + REQUESTS_PAUSE_MS;
		}
		if (handled == ASSIGNED)
			restart(start);
	}
	if (source->fd >= 0 || fd < 0)
		return -1;
	if (now_ms() < paused_until)
		return REQUESTS_PAUSE_MS;
	source->fd = fd;
	return -1;
}

static void serve(struct pollfd *sources, int count)
{
	struct start start = {.until = now_ms() + SERVICES_WAIT_MS};
	for (;;) {
		int wait = shorter_wait(poll_requests(&sources[REQUESTS], &start), servers_maintain());
		wait = shorter_wait(wait, programs_release_late());
		bool starting = is_starting(&start);
		if (starting)
			wait = start.answered ? START_POLL_MS : READY_POLL_MS;
		if (poll(sources, (nfds_t)count, wait) < 0)
			for (int i = 0; i < count; i++)
				sources[i].revents = 0;
		for (int i = BUTTONS; i < count; i++)
			if (sources[i].revents && power_pressed(sources[i].fd))
				end_machine(RB_POWER_OFF);
		if (sources[SIGNALS].revents)
			handle_signal(sources[SIGNALS].fd, &start);
		if (starting)
			advance(&start);
	}
}

/* It is the first to run when a request of the host comes, before programs that take all the CPU; its children are not. */
static void prefer_stage(void)
{
	const struct sched_param priority = {.sched_priority = 1};
	sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &priority);
}

static void write_pid(void)
{
	char pid[16];
	snprintf(pid, sizeof pid, "%d", (int)getpid());
	write_file(STAGE_FILE, pid, strlen(pid), 0644);
}

int stage_main(const char *kit_namespace)
{
	struct pollfd sources[BUTTONS + MAX_BUTTONS] = {0};
	int fd = atoi(kit_namespace);
	if (setns(fd, CLONE_NEWNS) || chdir("/"))
		die(EXIT_CANNOT_RUN, "cannot enter the kit's file system: %s", strerror(errno));
	close(fd);
	set_oom("-1000");
	config_load(CONFIG_FILE);
	write_pid();
	if (!show_loaded_uuid() || !programs_prepare())
		die(EXIT_CANNOT_RUN, "cannot prepare the programs: %s", strerror(errno));
	prefer_stage();
	sources[SIGNALS] = (struct pollfd){.fd = block_signals(), .events = POLLIN};
	sources[REQUESTS] = (struct pollfd){.fd = -1, .events = POLLIN};
	serve(sources, BUTTONS + open_buttons(sources + BUTTONS, MAX_BUTTONS));
	return 1;
}
