/* The one child of tini: runs the SSH servers and runsvdir, says `ready`, and powers the machine off in order.
 *
 * It lives as long as the machine: if it ended, tini would end and the kernel would panic. It therefore does the last
 * steps of a power-off itself instead of leaving them to something that its own signals would kill.
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
#include <sys/wait.h>
#include <unistd.h>

#define READY_POLL_MS 2 /* a look at a file */
#define START_POLL_MS 10
#define REQUESTS_REST_MS 1000
#define MAX_BUTTONS 8

enum { SIGNALS, REQUESTS, BUTTONS }; /* what is polled, in this order */

/* SSH servers, `ready`, runit with the agent, programs: in this order, or `ready` last where it is to wait for them. */
struct start {
	bool answered; /* the SSH servers do, or have had their time */
	bool level;    /* runit and the agent no longer come behind everything else */
	bool told;     /* every program's supervisor */
	bool announced;
	pid_t supervisor; /* not yet where it is not positive */
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
			sleep_ms(100); /* a supervisor that cannot start must not burn the machine's CPU */
			start->supervisor = start_supervisor(0);
		}
	}
}

/* SIGHUP says that the users' SSH was switched; it has no effect but that the loop comes round. */
static int block_signals(void)
{
	sigset_t wanted;
	sigemptyset(&wanted);
	for (const int *number = (const int[]){SIGCHLD, SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP, 0}; *number; number++)
		sigaddset(&wanted, *number);
	sigprocmask(SIG_BLOCK, &wanted, NULL);
	return signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void announce(struct start *start)
{
	start->announced = true;
	boot_say("ready");
	send_event("ready\n");
	write_file(READY_FILE, "", 0, 0644);
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

/* Two big programs, before the user's own, which may take all the CPU there is. Where there are none of those nobody
 * waits for these, while whoever waited for `ready` sends a command at once: they come up behind everything else. */
static bool advance_agent(struct start *start)
{
	if (start->supervisor <= 0)
		start->supervisor = start_supervisor(start->announced && !programs_wanted() ? BEHIND : 0);
	if (!agent_ready() && now_ms() < start->until)
		return false;
	level_supervisor(start->supervisor);
	start->until = now_ms() + INIT_WAIT_MS;
	return true;
}

/* One look at how far the start has come. Every step has an end: a kit whose agent or SSH never comes up must still
 * start the user's programs, and one that hangs at its start must not keep `ready` back. */
static void advance(struct start *start)
{
	start->answered = start->answered || advance_servers(start);
	start->level = start->level || (start->answered && advance_agent(start));
	if (!start->level)
		return;
	bool late = now_ms() > start->until;
	if (!start->told)
		start->told = programs_start(late) || late;
	if (start->told && !start->announced && (programs_started() || late))
		announce(start);
}

/* The port comes up while the machine starts. Without a host at its other end it is ready all the time, with nothing to
 * read: then it is left alone for a while. Milliseconds until it is to be looked at again, or -1. */
static int attend_requests(struct pollfd *source, bool starting)
{
	static long long rests_until;
	static int fd = -1;
	if (fd < 0 && starting)
		source->fd = fd = open_requests();
	if (source->fd >= 0 && source->revents) {
		fd = source->fd;
		answer_requests(fd);
		if (!(source->revents & POLLIN)) {
			source->fd = -1;
			rests_until = now_ms() + REQUESTS_REST_MS;
		}
	}
	if (source->fd >= 0 || fd < 0)
		return -1;
	if (now_ms() < rests_until)
		return REQUESTS_REST_MS;
	source->fd = fd;
	return -1;
}

static void serve(struct pollfd *sources, int count)
{
	struct start start = {.until = now_ms() + SERVICES_WAIT_MS};
	for (;;) {
		bool starting = !start.told || !start.announced;
		int wait = sooner(servers_attend(), attend_requests(&sources[REQUESTS], starting));
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

static void tell_pid(void)
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
	tell_pid();
	programs_prepare();
	sources[SIGNALS] = (struct pollfd){.fd = block_signals(), .events = POLLIN};
	sources[REQUESTS] = (struct pollfd){.fd = -1, .events = POLLIN};
	serve(sources, BUTTONS + open_buttons(sources + BUTTONS, MAX_BUTTONS));
	return 1;
}
