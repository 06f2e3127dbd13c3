/* Commands that run to their end, without a terminal: their two outputs as frames, then how they ended.
 *
 * Nothing is kept of an output: a pipe is read while its client's stream has room, and up to the limit that the client
 * has set; what is beyond it is read and dropped. A command ends with its client and at its deadline, with all that it
 * started; what it leaves in the background after an ordinary end lives on.
 */
#define _GNU_SOURCE
#include "hold_commands.h"

#include "guest.h"
#include "hold_frames.h"
#include "hold_start.h"
#include "hold_state.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct output {
	int fd;        /* -1: it was read to its end */
	uint32_t left; /* bytes that are still sent */
	size_t rest;   /* after the command's end: bytes that the kernel had then */
};
struct command {
	struct stream *stream;
	uint32_t request, id;
	pid_t pid; /* 0: it was waited for */
	int cgroup, code;
	bool late, truncated;
	long long until;
	struct output outputs[COMMAND_OUTPUTS];
};

static struct command *commands[MAX_COMMANDS];
static size_t command_count;

static void close_output(struct output *output)
{
	if (output->fd >= 0)
		close(output->fd);
	output->fd = -1;
}

/* Before the command was waited for; its process group and its number may be another's afterwards. */
static void kill_all(const struct command *command)
{
	if (command->pid <= 0)
		return;
	kill(command->pid, SIGKILL);
	kill(-command->pid, SIGKILL); /* where the kernel has no cgroups */
	cgroup_kill(command->cgroup);
}

static void remove_command(struct command *command)
{
	size_t place = 0;
	for (size_t i = 0; i < COMMAND_OUTPUTS; i++)
		close_output(&command->outputs[i]);
	cgroup_remove(command->cgroup);
	while (commands[place] != command)
		place++;
	commands[place] = commands[--command_count];
	free(command);
}

/* Once it was waited for, and its outputs were read. */
static void finish(struct command *command)
{
	struct stream *stream = command->stream;
	stream->pending--;
	size_t frame = begin_frame(stream, DONE, command->request);
	put_number(stream, (uint64_t)command->code, 1);
	put_number(stream, command->truncated, 1);
	end_frame(stream, frame);
	remove_command(command);
}

static bool is_finished(const struct command *command)
{
	return !command->pid && command->outputs[0].fd < 0 && command->outputs[1].fd < 0;
}

static void send_piece(struct command *command, size_t number, const uint8_t *data, size_t size)
{
	size_t frame = begin_frame(command->stream, WRITTEN, command->id);
	put_number(command->stream, number + 1, 1);
	put_bytes(command->stream, data, size);
	end_frame(command->stream, frame);
}

/* One read. After the command's end what the kernel had then is there for sure, and is all that is read. */
static void read_output(struct command *command, size_t number)
{
	static uint8_t data[PIECE];
	struct output *output = &command->outputs[number];
	size_t limit = !command->pid && output->rest < sizeof data ? output->rest : sizeof data;
	ssize_t got = read(output->fd, data, limit);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	size_t kept = got < 0 ? 0 : (size_t)got;
	if (kept > output->left)
		kept = output->left;
	command->truncated |= got > (ssize_t)kept;
	output->left -= (uint32_t)kept;
	if (kept)
		send_piece(command, number, data, kept);
	if (!command->pid && got > 0)
		output->rest -= (size_t)got;
	if (got <= 0 || (!command->pid && !output->rest))
		close_output(output);
}

static bool has_room(const struct command *command, const struct output *output)
{
	return !output->left || unsent(command->stream) < OUT_FILL;
}

int commands_poll(struct pollfd *sources)
{
	for (size_t i = 0; i < command_count; i++)
		for (size_t number = 0; number < COMMAND_OUTPUTS; number++) {
			const struct output *output = &commands[i]->outputs[number];
			bool reading = has_room(commands[i], output);
			/* A hang-up is reported whether it is asked for or not. */
			*sources++ = (struct pollfd){.fd = reading ? output->fd : -1, .events = POLLIN};
		}
	return (int)(COMMAND_OUTPUTS * command_count);
}

/* From the last one on, as they may be removed. */
void commands_serve(const struct pollfd *sources, size_t count)
{
	for (size_t i = count; i-- > 0;) {
		struct command *command = commands[i];
		for (size_t number = 0; number < COMMAND_OUTPUTS; number++)
			if (sources[COMMAND_OUTPUTS * i + number].revents && has_room(command, &command->outputs[number]))
				read_output(command, number);
		if (is_finished(command))
			finish(command);
	}
}

int commands_expire(void)
{
	int wait = -1;
	for (size_t i = 0; i < command_count; i++) {
		struct command *command = commands[i];
		if (command->late || !command->pid)
			continue;
		long long rest = command->until - now_ms();
		command->late = rest <= 0;
		if (command->late)
			kill_all(command);
		else
			wait = shorter_wait(wait, rest > INT_MAX ? INT_MAX : (int)rest);
	}
	return wait;
}

/* What it has written before its end is in the pipes; their other ends may be open in background processes. */
void command_ended(pid_t pid, int status)
{
	size_t place = 0;
	while (place < command_count && commands[place]->pid != pid)
		place++;
	if (place == command_count)
		return;
	struct command *command = commands[place];
	command->pid = 0;
	cgroup_outlive(command->cgroup); /* what it has left in the background */
	command->code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
	if (command->late)
		command->code = EXIT_TIMEOUT;
	for (struct output *output = command->outputs; output < command->outputs + COMMAND_OUTPUTS; output++) {
		int size = 0;
		if (output->fd >= 0 && !ioctl(output->fd, FIONREAD, &size) && size > 0)
			output->rest = (size_t)size;
		else
			close_output(output);
	}
	if (is_finished(command))
		finish(command);
}

void commands_leave(const struct stream *stream)
{
	for (size_t i = command_count; i-- > 0;)
		if (commands[i]->stream == stream) {
			kill_all(commands[i]);
			remove_command(commands[i]);
		}
}

/* False with errno. */
static bool start_processes(struct command *command, const struct start *start)
{
	int pipes[COMMAND_OUTPUTS][2] = {{-1, -1}, {-1, -1}};
	bool made = !pipe2(pipes[0], O_CLOEXEC) && !pipe2(pipes[1], O_CLOEXEC);
	command->cgroup = made ? cgroup_create('c') : -1;
	command->pid = made ? cgroup_fork(command->cgroup) : -1;
	if (!command->pid)
		command_exec(start, pipes[0][1], pipes[1][1]);
	int error = errno;
	for (size_t i = 0; i < COMMAND_OUTPUTS; i++) {
		command->outputs[i].fd = pipes[i][0];
		if (pipes[i][0] < 0)
			continue;
		close(pipes[i][1]);
		fcntl(pipes[i][0], F_SETFL, O_NONBLOCK);
	}
	errno = error;
	if (command->pid < 0)
		return false;
	setpgid(command->pid, command->pid); /* in parent and child, so that the group exists in either order */
	return true;
}

static void start_command(struct stream *stream, struct command *wanted, const struct start *start)
{
	struct command *command = command_count < MAX_COMMANDS && stream->pending < MAX_PENDING ? malloc(sizeof *command) : NULL;
	if (!command) {
		send_failed(stream, wanted->request, TOO_MANY, "too many commands run");
		return;
	}
	*command = *wanted;
	commands[command_count++] = command;
	if (start_processes(command, start)) {
		stream->pending++;
		return;
	}
	send_failed(stream, wanted->request, CANNOT_START, strerror(errno));
	command->pid = 0;
	remove_command(command);
}

static void run(struct stream *stream, uint32_t request, struct fields *fields)
{
	struct command command = {.stream = stream, .request = request, .cgroup = -1};
	struct start start = {0};
	command.id = take_number(fields, 4);
	command.until = now_ms() + take_number(fields, 4);
	command.outputs[0].left = command.outputs[1].left = take_number(fields, 4);
	start.user = take_text(fields, MAX_PATH_SIZE);
	start.directory = take_text(fields, MAX_PATH_SIZE);
	start.command = take_words(fields);
	start.environment = take_words(fields);
	if (fields->bad || fields->left || !*start.command)
		send_failed(stream, request, BAD_REQUEST, "the request is not complete");
	else
		start_command(stream, &command, &start);
	free(start.user);
	free(start.directory);
	free_words(start.command);
	free_words(start.environment);
}

/* Not answered: the command's own answer follows. */
static void stop(const struct stream *stream, uint32_t id)
{
	for (size_t i = 0; i < command_count; i++)
		if (commands[i]->stream == stream && commands[i]->id == id)
			kill_all(commands[i]);
}

void handle_command(struct stream *stream, uint8_t type, uint32_t request, struct fields *fields)
{
	if (type == RUN)
		run(stream, request, fields);
	else
		stop(stream, take_number(fields, 4));
}
