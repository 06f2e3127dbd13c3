/* Ends everything that the users' SSH server runs: the listener, the server of each connection, and every process of a
 * session that one of them began. What has made itself a session of its own (a daemon, tmux) stays, as is usual.
 */
#include "guest.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_SESSIONS 1024 /* in one round; there are several */
#define HANGUP_MS 200     /* for shells to save their history */
#define POLL_MS 10
#define LIMIT_MS 5000

struct process {
	pid_t pid, parent, session;
	bool server;
};

static pid_t doomed[MAX_SESSIONS];
static size_t doomed_count;

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

static bool inspect(const char *entry, struct process *process)
{
	char path[300];
	int parent, session;
	process->pid = atoi(entry);
	snprintf(path, sizeof path, "/proc/%d/stat", (int)process->pid);
	char *text = process->pid > 1 ? read_file(path, NULL) : NULL;
	char *rest = text ? strrchr(text, ')') : NULL; /* the name before it may hold anything */
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
	size_t count = 0, room = 256;
	*list = malloc(room * sizeof **list);
	while (processes && *list && (entry = readdir(processes))) {
		if (!inspect(entry->d_name, *list + count))
			continue;
		if (++count == room)
			*list = realloc(*list, (room *= 2) * sizeof **list);
	}
	if (!*list)
		die(EXIT_CANNOT_RUN, "out of memory");
	if (processes)
		closedir(processes);
	return count;
}

static bool is_doomed(pid_t session)
{
	for (size_t i = 0; i < doomed_count; i++)
		if (doomed[i] == session)
			return true;
	return false;
}

static void doom(pid_t session)
{
	if (!is_doomed(session) && doomed_count < MAX_SESSIONS)
		doomed[doomed_count++] = session;
}

/* Remembered beyond the round: once its server is dead nothing tells whose a session was. */
static void doom_sessions(const struct process *list, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (!list[i].server)
			continue;
		kill(list[i].pid, SIGSTOP); /* begins no more of them */
		doom(list[i].session);
		for (size_t j = 0; j < count; j++)
			if (list[j].parent == list[i].pid)
				doom(list[j].session);
	}
}

/* How many processes were there to be ended. */
static size_t round_of(int signal)
{
	struct process *list;
	size_t left = 0;
	/* Twice: what a server began before it was stopped is in the second list. */
	for (int pass = 0; pass < 2; pass++) {
		size_t count = list_processes(&list);
		doom_sessions(list, count);
		for (size_t i = 0; pass && i < count; i++) {
			if (list[i].pid == getpid() || !is_doomed(list[i].session))
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
	if (!round_of(SIGHUP))
		return true;
	sleep_ms(HANGUP_MS);
	while (round_of(SIGKILL)) {
		if (now_ms() > until)
			return false;
		sleep_ms(POLL_MS);
	}
	return true;
}
