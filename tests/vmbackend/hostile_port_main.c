/* A guest that answers in place of its kit on the port of requests, once it has stopped the kit's process.
 *
 *   hostile_port MODE    silent: says nothing; flood: says something without end; deny: answers each message with a generation of
 *                        its own; pretend: answers each one as a guest that has done all of it, does nothing of it,
 *                        writes `liar` to /who, and announces the address that it has; before, it says that it has
 *                        stopped its programs
 *
 * It prints a line when it has the port.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PORTS "/sys/class/virtio-ports"
#define NAME "org.microvm.requests.0"
#define ITEMS "freeze entropy clock configuration mac connections address names identity keys generation"
#define ANNOUNCE "arping -c 5 -U -I eth0 $(ip -4 -o address show eth0 | awk '{print $4}' | cut -d / -f 1)"
#define MESSAGE_SIZE (1 << 18)
#define QUIET_MS 500

static char text[MESSAGE_SIZE + 1];

static size_t read_start(const char *path, char *to, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : read(fd, to, size - 1);
	if (fd >= 0)
		close(fd);
	to[got > 0 ? got : 0] = 0;
	return got > 0 ? (size_t)got : 0;
}

static void find_port(char *name, size_t size)
{
	DIR *ports = opendir(PORTS);
	struct dirent *entry;
	char path[600];
	*name = 0;
	while (ports && (entry = readdir(ports))) {
		snprintf(path, sizeof path, PORTS "/%s/name", entry->d_name);
		if (entry->d_name[0] != '.' && read_start(path, text, sizeof text) && !strncmp(text, NAME, strlen(NAME)))
			snprintf(name, size, "/%s", entry->d_name);
	}
}

/* The descriptor of that device which a process has; -1: it has none. */
static int find_descriptor(const char *pid, const char *name)
{
	char path[600], target[600];
	snprintf(path, sizeof path, "/proc/%s/fd", pid);
	DIR *links = opendir(path);
	struct dirent *entry;
	int found = -1;
	while (links && found < 0 && (entry = readdir(links))) {
		ssize_t length = readlinkat(dirfd(links), entry->d_name, target, sizeof target - 1);
		target[length > 0 ? length : 0] = 0;
		if (length > (ssize_t)strlen(name) && !strcmp(target + length - strlen(name), name))
			found = atoi(entry->d_name);
	}
	if (links)
		closedir(links);
	return found;
}

static int take_port(void)
{
	char name[300];
	DIR *processes = opendir("/proc");
	struct dirent *entry;
	find_port(name, sizeof name);
	while (*name && processes && (entry = readdir(processes))) {
		int number = atoi(entry->d_name) > 0 ? find_descriptor(entry->d_name, name) : -1;
		if (number < 0)
			continue;
		kill(atoi(entry->d_name), SIGSTOP);
		return (int)syscall(SYS_pidfd_getfd, (int)syscall(SYS_pidfd_open, atoi(entry->d_name), 0), number, 0);
	}
	return -1;
}

/* All that comes until nothing does for a moment; the record that begins so, or an empty text. */
static size_t read_message(int fd)
{
	struct pollfd source = {.fd = fd, .events = POLLIN};
	size_t size = 0;
	while (poll(&source, 1, size ? QUIET_MS : -1) > 0 && size < MESSAGE_SIZE) {
		ssize_t got = read(fd, text + size, MESSAGE_SIZE - size);
		if (got > 0)
			size += (size_t)got;
		else
			usleep(10000); /* no host is at the other end */
	}
	text[size] = 0;
	return size;
}

static const char *record(size_t size, const char *key)
{
	const char *found = memmem(text, size, key, strlen(key));
	return found ? found + strlen(key) : "";
}

static void deny(int fd)
{
	read_message(fd);
	dprintf(fd, "renewed 8f14e45f-ceea-467f-a2d9-0b6a3b1f0d3a " ITEMS " 1\n");
}

static void pretend(int fd)
{
	size_t size = read_message(fd);
	if (!strncmp(text, "freeze ", 7) || !strncmp(text, "thaw ", 5)) {
		dprintf(fd, "%s%s", *text == 'f' ? "frozen" : "thawed", strchr(text, ' '));
		return;
	}
	dprintf(fd, "renewed %s " ITEMS " %s\n", record(size, "generation="), record(size, "clock="));
	int who = open("/who", O_WRONLY | O_CREAT | O_TRUNC, 0644);
	if (who < 0 || write(who, "liar\n", 5) != 5 || close(who) || system(ANNOUNCE))
		perror("pretend");
}

int main(int argc, char **argv)
{
	int fd = argc == 2 ? take_port() : -1;
	if (fd < 0)
		return 1;
	printf("has the port\n");
	fflush(stdout);
	memset(text, 'x', sizeof text - 2);
	text[sizeof text - 2] = '\n';
	for (;;)
		if (!strcmp(argv[1], "flood"))
			write(fd, text, 4096) > 0 ? 0 : usleep(1000);
		else if (!strcmp(argv[1], "deny"))
			deny(fd);
		else if (!strcmp(argv[1], "pretend"))
			pretend(fd);
		else
			pause();
}
