/* The terminals: reading their output, their programs' ends, and when they are forgotten. */
#define _GNU_SOURCE
#include "hold_terminals.h"

#include "guest.h"
#include "hold_changes.h"
#include "hold_commands.h"
#include "hold_frames.h"
#include "hold_input.h"
#include "hold_state.h"
#include "hold_tasks.h"
#include "hold_views.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_ID 255
#define ID_FILE "last-id"
#ifndef KEPT_MS        /* tests have a shorter one */
#define KEPT_MS 600000 /* an ended terminal that no client closed */
#endif
#define PAUSE_MS 100 /* between readings of a terminal that no process has open */

struct terminal *terminal_find(uint32_t id)
{
	for (size_t i = 0; i < terminal_count; i++)
		if (terminals[i]->id == id && terminals[i]->starting < 0)
			return terminals[i];
	return NULL;
}

static uint32_t last_id;
static int last_id_file = -1;

/* A client that comes back names a terminal by its id alone: it must not find another one there, because the hold was killed
 * while it was away.
 */
void terminal_ids_open(int listener)
{
	struct sockaddr_un address = {0};
	char path[sizeof address.sun_path + sizeof ID_FILE];
	socklen_t size = sizeof address - 1; /* it ends with a NUL whatever its length */
	const char *end = getsockname(listener, (struct sockaddr *)&address, &size) ? NULL : strrchr(address.sun_path, '/');
	if (!end)
		return;
	snprintf(path, sizeof path, "%.*s/" ID_FILE, (int)(end - address.sun_path), address.sun_path);
	last_id_file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (pread(last_id_file, &last_id, sizeof last_id, 0) != sizeof last_id)
		last_id = 0;
}

/* One byte, as it is on the way to the user; one that was given back is used again after all others. */
static uint32_t free_id(void)
{
	bool used;
	do {
		last_id = last_id % MAX_ID + 1;
		used = false;
		for (size_t i = 0; i < terminal_count; i++)
			used |= terminals[i]->id == last_id;
	} while (used);
	(void)!pwrite(last_id_file, &last_id, sizeof last_id, 0);
	return last_id;
}

struct terminal *terminal_add(void)
{
	struct terminal *terminal = terminal_count < MAX_TERMINALS ? calloc(1, sizeof *terminal) : NULL;
	if (!terminal || !buffer_open(&terminal->output, buffer_size)) {
		free(terminal);
		return NULL;
	}
	terminal->id = free_id();
	terminal->created = clock_ms();
	terminal->master = terminal->starting = terminal->cgroup = -1;
	terminals[terminal_count++] = terminal;
	return terminal;
}

static void close_once(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* Its program is killed, with all of its processes, unless it had ended by itself: then those that it left live on. */
void terminal_remove(struct terminal *terminal)
{
	size_t place = 0;
	if (!terminal->ended_at && terminal->pid > 0) {
		kill(terminal->pid, SIGKILL);
		kill(-terminal->pid, SIGKILL); /* where the kernel has no cgroups */
		cgroup_kill(terminal->cgroup);
	}
	input_drop(terminal);
	close_once(&terminal->master);
	close_once(&terminal->starting);
	close_once(&terminal->cgroup);
	free(terminal->output.data);
	free_words(terminal->command);
	change_note();
	while (terminals[place] != terminal)
		place++;
	memmove(terminals + place, terminals + place + 1, (--terminal_count - place) * sizeof *terminals);
	free(terminal);
}

/* All output was read, or as much as the kernel had when the program exited: what background processes write later is
 * not waited for. They keep running, as after the end of any terminal. */
static void end_terminal(struct terminal *terminal)
{
	input_drop(terminal);
	close_once(&terminal->master);
	close_once(&terminal->cgroup);
	terminal->ended_at = now_ms();
}

void terminals_reap(void)
{
	int status;
	pid_t ended;
	while ((ended = waitpid(-1, &status, WNOHANG)) > 0) {
		command_ended(ended, status);
		task_ended(ended, status);
		for (size_t i = 0; i < terminal_count; i++) {
			if (terminals[i]->pid != ended)
				continue;
			terminals[i]->pid = 0;
			cgroup_outlive(terminals[i]->cgroup); /* what it has left in the background */
			terminals[i]->status = status;
			terminals[i]->rest = buffer_size;
			terminals[i]->paused_until = 0;
		}
	}
}

static void finish_start(struct terminal *terminal)
{
	struct stream *stream = terminal->creator;
	close_once(&terminal->starting);
	if (stream)
		stream->pending--;
	if (!terminal->reason_size) {
		terminal->creator = NULL;
		change_note();
		if (!stream)
			return; /* it is found in the list */
		view_open(terminal, stream, 0, terminal->creator_window);
		size_t frame = begin_frame(stream, DONE, terminal->creation);
		put_number(stream, terminal->id, 4);
		end_frame(stream, frame);
		return;
	}
	terminal->reason[strcspn(terminal->reason, "\n")] = 0;
	const char *reason = strncmp(terminal->reason, "guest: ", 7) ? terminal->reason : terminal->reason + 7;
	if (stream)
		send_failed(stream, terminal->creation, CANNOT_START, reason);
	terminal_remove(terminal);
}

static void read_start(struct terminal *terminal)
{
	size_t space = REASON_SIZE - 1 - terminal->reason_size;
	ssize_t got = space ? read(terminal->starting, terminal->reason + terminal->reason_size, space) : 0;
	if (got > 0)
		terminal->reason_size += (size_t)got;
	else if (got == 0 || errno != EAGAIN)
		finish_start(terminal);
}

static void read_output(struct terminal *terminal)
{
	size_t room = views_room(terminal);
	size_t limit = !terminal->pid && terminal->rest < room ? terminal->rest : room;
	ssize_t got = limit ? buffer_read(&terminal->output, terminal->master, limit < READ_SIZE ? limit : READ_SIZE) : -1;
	if (got > 0 && !terminal->pid)
		terminal->rest -= (size_t)got;
	if (got > 0 || (got < 0 && errno == EINTR) || !room)
		return;
	if (!terminal->pid)
		end_terminal(terminal);
	else if (got == 0 || errno != EAGAIN)
		terminal->paused_until = now_ms() + PAUSE_MS;
}

int terminal_poll(struct pollfd *sources)
{
	for (size_t i = 0; i < terminal_count; i++, sources += 2) {
		struct terminal *terminal = terminals[i];
		short events = terminal->inputs ? POLLOUT : 0;
		if (terminal->starting < 0 && views_room(terminal))
			events |= POLLIN;
		bool paused = terminal->paused_until > now_ms();
		/* A hang-up is reported whether it is asked for or not. */
		sources[0] = (struct pollfd){.fd = events && !paused ? terminal->master : -1, .events = events};
		sources[1] = (struct pollfd){.fd = terminal->starting, .events = POLLIN};
	}
	return (int)(2 * terminal_count);
}

static void serve_one(struct terminal *terminal, const struct pollfd *sources)
{
	if (sources[0].revents & POLLOUT)
		input_write(terminal);
	bool exited = !terminal->pid && terminal->starting < 0 && !terminal->ended_at;
	if (exited || (sources[0].events & POLLIN && sources[0].revents))
		read_output(terminal);
	if (sources[1].fd >= 0 && sources[1].revents)
		read_start(terminal); /* may remove it */
}

/* From the last one on, as they may be removed. */
void terminal_serve(const struct pollfd *sources, size_t count)
{
	for (size_t i = count; i-- > 0;)
		if (i < terminal_count)
			serve_one(terminals[i], sources + 2 * i);
}

int terminals_expire(void)
{
	int wait = -1;
	for (size_t i = terminal_count; i-- > 0;) {
		struct terminal *terminal = terminals[i];
		wait = shorter_wait(wait, views_expire(terminal));
		if (terminal->paused_until > now_ms())
			wait = shorter_wait(wait, PAUSE_MS);
		if (!terminal->pid && terminal->starting < 0 && !terminal->ended_at && views_room(terminal))
			wait = 0;
		long long rest = terminal->ended_at ? terminal->ended_at + KEPT_MS - now_ms() : -1;
		if (terminal->ended_at && rest <= 0)
			terminal_remove(terminal);
		else if (terminal->ended_at)
			wait = shorter_wait(wait, (int)rest);
	}
	return wait;
}
