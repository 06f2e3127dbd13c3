/* `guest hold`: one process that has all terminals, watches and commands of its guest, and outlives the connections to them.
 *
 * `guest attach FOLDER BUFFER LINGER` starts it where none listens in FOLDER, hands its standard input and output over and
 * stays until the hold closes the connection: no byte is copied twice. The first process of a machine sets the size of a
 * buffer, in bytes, and how long a lost client is waited for, in milliseconds.
 */
#define _GNU_SOURCE
#include "guest.h"
#include "hold_changes.h"
#include "hold_commands.h"
#include "hold_connects.h"
#include "hold_state.h"
#include "hold_streams.h"
#include "hold_task_former.h"
#include "hold_task_table.h"
#include "hold_tasks.h"
#include "hold_terminals.h"
#include "hold_watches.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MIN_BUFFER 4096
#define MAX_BUFFER (16 << 20)
#define OOM_SCORE "-900" /* its children have 0 again */
#define SOURCES (2 + 3 * MAX_STREAMS + 2 * MAX_TERMINALS + MAX_WATCHES + COMMAND_OUTPUTS * MAX_COMMANDS + TASK_SOURCES * MAX_RUNNING + MAX_CONNECTS)
#define FIRST_SWEEP_MS 50
#define LAST_SWEEP_MS 60000

static int listener, signals;
static long long sweep_at;
static long sweep_pause;

/* A process has ended: its group can be removed once the kernel is done with all that was killed with it. */
static void plan_sweep(void)
{
	long long soon = now_ms() + FIRST_SWEEP_MS;
	sweep_pause = FIRST_SWEEP_MS;
	if (soon < sweep_at || !sweep_at)
		sweep_at = soon;
}

/* Of what lives on after its command, and of `guest run`, no end is reported here: those groups are looked for. */
static int groups_expire(void)
{
	long long rest = sweep_at - now_ms();
	if (rest > 0)
		return (int)rest;
	for (const char *kind = "tckr"; *kind; kind++)
		cgroup_sweep(*kind);
	sweep_pause = 2 * sweep_pause < LAST_SWEEP_MS ? 2 * sweep_pause : LAST_SWEEP_MS;
	sweep_at = now_ms() + sweep_pause;
	return (int)sweep_pause;
}

static void serve(void)
{
	static struct pollfd sources[SOURCES];
	int wait = shorter_wait(shorter_wait(terminals_expire(), commands_expire()), tasks_expire());
	wait = shorter_wait(wait, watches_expire());
	changes_serve();
	wait = streams_hurry() ? 0 : shorter_wait(wait, groups_expire());
	size_t stream_total = stream_count, terminal_total = terminal_count;
	struct pollfd *of_commands = sources + 2, *of_streams = of_commands + commands_poll(of_commands);
	struct pollfd *of_terminals = of_streams + stream_poll(of_streams);
	struct signalfd_siginfo info;
	sources[0] = (struct pollfd){.fd = signals, .events = POLLIN};
	sources[1] = (struct pollfd){.fd = listener, .events = POLLIN};
	struct pollfd *of_watches = of_terminals + terminal_poll(of_terminals);
	size_t watch_total = (size_t)watch_poll(of_watches);
	struct pollfd *of_tasks = of_watches + watch_total;
	size_t task_total = (size_t)tasks_poll(of_tasks);
	struct pollfd *of_connects = of_tasks + task_total;
	size_t connect_total = (size_t)connects_poll(of_connects);
	nfds_t count = (nfds_t)(of_connects - sources) + connect_total;
	if (poll(sources, count, wait) < 0)
		return;
	commands_serve(of_commands, (size_t)(of_streams - of_commands) / COMMAND_OUTPUTS);
	terminal_serve(of_terminals, terminal_total);
	watch_serve(of_watches, watch_total);
	tasks_serve(of_tasks, task_total);
	connects_serve(of_connects, connect_total);
	if (sources[0].revents && read(signals, &info, sizeof info) == sizeof info) {
		terminals_reap();
		plan_sweep();
	}
	stream_serve(of_streams, stream_total);
	if (sources[1].revents)
		stream_accept(listener);
}

/* Of a process before it that was killed: its terminals and commands end as they do with their connection. The first sweep
 * removes their groups.
 */
static void end_former(void)
{
	cgroup_prepare();
	cgroup_kill_former('t');
	cgroup_kill_former('c');
	cgroup_kill_former('k');
	plan_sweep();
}

int hold_main(char **argv)
{
	sigset_t wanted;
	listener = atoi(argv[0]);
	buffer_size = strtoul(argv[1], NULL, 10);
	linger_ms = atol(argv[2]);
	if (buffer_size < MIN_BUFFER || buffer_size > MAX_BUFFER || linger_ms < 0)
		die(EXIT_CANNOT_RUN, "bad size of a buffer or time to wait");
	fcntl(listener, F_SETFD, FD_CLOEXEC);
	fcntl(listener, F_SETFL, O_NONBLOCK);
	umask(022);
	set_oom(OOM_SCORE);
	config_load(CONFIG_FILE);
	terminal_ids_open(listener);
	end_former();
	tasks_open();
	syscall(SYS_getrandom, &instance, sizeof instance, 0);
	for (const int *number = (const int[]){SIGPIPE, SIGHUP, SIGINT, SIGQUIT, 0}; *number; number++)
		signal(*number, SIG_IGN);
	sigemptyset(&wanted);
	sigaddset(&wanted, SIGCHLD);
	sigprocmask(SIG_SETMASK, &wanted, NULL);
	signals = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
	for (;;)
		serve();
}
