/* Ends everything that the users' SSH server runs: the listener, the server of each connection, and every process of a
 * session that one of them started. Processes in a session of their own (a daemon, tmux) stay, as is usual.
 */
#include "guest.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_SESSIONS 1024 /* at a time; processed in rounds */
#define HANGUP_MS 200     /* for shells to save their history */
#define POLL_MS 10
#define LIMIT_MS 5000

struct process {
	pid_t pid, parent, session;
	bool server;
};

static pid_t ending[MAX_SESSIONS];
static size_t ending_count;

static bool in_users_namespace(pid_t pid)
{
	char path[64], theirs[64] = "", users[64] = "";
	snprintf(path, sizeof path, "/proc/%d/ns/mnt", (int)pid);
	return readlink(path, theirs, sizeof theirs - 1) < 0 || readlink("/proc/1/ns/mnt", users, sizeof users - 1) < 0 ||
	       !strcmp(theirs, users);
}

static bool is_server(pid_t pid)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
	char *name = read_file(path, NULL);
	bool same = name && !strcmp(name, SSH_SERVER_NAME) && !in_users_namespace(pid);
	free(name);
	return same;
}

static bool read_process(const char *entry, struct process *process)
{
	char path[300];
	int parent, session;
	process->pid = atoi(entry);
	snprintf(path, sizeof path, "/proc/%d/stat", (int)process->pid);
	char *text = process->pid > 1 ? read_file(path, NULL) : NULL;
	char *rest = text ? strrchr(text, ')') : NULL; /* the name before it may contain anything */
	bool living = rest && sscanf(rest, ") %*c %d %*d %d", &parent, &session) == 2 && rest[2] != 'Z';
	free(text);
	if (!living)
		return false;
	process->parent = parent;
	process->session = session;
	process->server = is_server(process->pid);
	return true;
}

static size_t list_processes(struct process **list)
{
	DIR *processes = opendir("/proc");
	struct dirent *entry;
	size_t count = 0, capacity = 256;
	*list = malloc(capacity * sizeof **list);
	while (processes && *list && (entry = readdir(processes))) {
		if (!read_process(entry->d_name, *list + count))
			continue;
		if (++count == capacity)
			*list = realloc(*list, (capacity *= 2) * sizeof **list);
	}
	if (!*list)
		die(EXIT_CANNOT_RUN, "out of memory");
	if (processes)
		closedir(processes);
	return count;
}

static bool is_ending(pid_t session)
{
	for (size_t i = 0; i < ending_count; i++)
		if (ending[i] == session)
			return true;
	return false;
}

static void mark_ending(pid_t session)
{
	if (!is_ending(session) && ending_count < MAX_SESSIONS)
		ending[ending_count++] = session;
}

/* Kept across rounds: once its server is dead a session cannot be attributed any more. */
static void mark_sessions(const struct process *list, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (!list[i].server)
			continue;
		kill(list[i].pid, SIGSTOP); /* starts no further session */
		mark_ending(list[i].session);
		for (size_t j = 0; j < count; j++)
			if (list[j].parent == list[i].pid)
				mark_ending(list[j].session);
	}
}

/* Returns how many processes are still to be ended. */
static size_t signal_sessions(int signal)
{
	struct process *list;
	size_t left = 0;
	/* Two passes: sessions that a server started before it was stopped are in the second list. */
	for (int pass = 0; pass < 2; pass++) {
		size_t count = list_processes(&list);
		mark_sessions(list, count);
		for (size_t i = 0; pass && i < count; i++) {
			if (list[i].pid == getpid() || !is_ending(list[i].session))
				continue;
			left++;
			if (list[i].server && signal != SIGKILL)
				continue; /* still stopped */
			kill(list[i].pid, signal);
			kill(list[i].pid, SIGCONT);
		}
		free(list);
	}
	return left;
}

bool end_sessions(void)
{
	long long until = now_ms() + LIMIT_MS;
	if (!signal_sessions(SIGHUP))
		return true;
	sleep_ms(HANGUP_MS);
	while (signal_sessions(SIGKILL)) {
		if (now_ms() > until)
			return false;
		sleep_ms(POLL_MS);
	}
	return true;
}
