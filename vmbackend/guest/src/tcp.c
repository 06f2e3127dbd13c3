/* The kernel's table of TCP sockets, and the owner of a listening one. */
#include "guest.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ESTABLISHED 0x01
#define LISTEN 0x0a
#define MAX_LISTENERS 16

/* Counts the sockets of PORT in STATE; stores at most CAPACITY of their inodes. */
static int scan(const char *table, unsigned port, unsigned state, unsigned long *inodes, int capacity)
{
	int count = 0;
	char *text = read_file(table, NULL), *rest = NULL;
	for (char *line = text ? strtok_r(text, "\n", &rest) : NULL; line; line = strtok_r(NULL, "\n", &rest)) {
		unsigned local, found;
		unsigned long inode;
		if (sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %*s %*s %lu", &local, &found,
			   &inode) != 3 || local != port || found != state)
			continue;
		if (count < capacity)
			inodes[count] = inode;
		count++;
	}
	free(text);
	return count;
}

static int sockets(unsigned port, unsigned state, unsigned long *inodes, int capacity)
{
	int count = scan("/proc/net/tcp", port, state, inodes, capacity), stored = count < capacity ? count : capacity;
	return count + scan("/proc/net/tcp6", port, state, inodes + stored, capacity - stored);
}

bool process_listens(pid_t pid, unsigned port)
{
	unsigned long inodes[MAX_LISTENERS];
	int count = sockets(port, LISTEN, inodes, MAX_LISTENERS);
	char path[300], target[300], wanted[64];
	bool found = false;
	snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
	DIR *links = count ? opendir(path) : NULL;
	struct dirent *entry;
	while (links && !found && (entry = readdir(links))) {
		ssize_t length = readlinkat(dirfd(links), entry->d_name, target, sizeof target - 1);
		target[length > 0 ? length : 0] = 0;
		for (int i = 0; i < count && i < MAX_LISTENERS && !found; i++) {
			snprintf(wanted, sizeof wanted, "socket:[%lu]", inodes[i]);
			found = !strcmp(target, wanted);
		}
	}
	if (links)
		closedir(links);
	return found;
}

int connections_main(const char *port)
{
	char *end;
	unsigned long number = strtoul(port, &end, 10);
	if (*end || !number || number > 65535)
		die(EXIT_CANNOT_RUN, "not a port: %s", port);
	printf("%d\n", sockets((unsigned)number, ESTABLISHED, NULL, 0));
	return fflush(stdout) ? 1 : 0;
}
