/* The end of all TCP connections that a machine had before its memory was loaded: their other ends are another machine's.
 *
 * Small kernels cannot destroy sockets of others (INET_DIAG_DESTROY). So each socket is taken over from its process for a moment
 * and disconnected, upon which whoever reads or writes it gets an error at once. What listens goes on, without the connections
 * from outside that its program has not accepted yet: they have no descriptor, so they are accepted here and closed.
 */
#define _GNU_SOURCE
#include "guest.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STATE_ESTABLISHED 1
#define STATE_CLOSED 7
#define STATE_CLOSE_WAIT 8
#define STATE_LISTENS 10

union address {
	struct sockaddr any;
	struct sockaddr_in four;
	struct sockaddr_in6 six;
};

static bool is_loopback(const union address *address)
{
	if (address->any.sa_family == AF_INET)
		return ntohl(address->four.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	const struct in6_addr *six = &address->six.sin6_addr;
	return IN6_IS_ADDR_LOOPBACK(six) || (IN6_IS_ADDR_V4MAPPED(six) && six->s6_addr[12] == IN_LOOPBACKNET);
}

/* An address of the kernel's table: words of four bytes, as they lie in memory. */
static bool is_loopback_text(const char *text)
{
	union address address = {.any.sa_family = strlen(text) > 8 ? AF_INET6 : AF_INET};
	unsigned words[4] = {0};
	for (size_t i = 0; i < strlen(text) / 8; i++)
		sscanf(text + 8 * i, "%8x", &words[i]);
	if (address.any.sa_family == AF_INET)
		memcpy(&address.four.sin_addr, words, sizeof address.four.sin_addr);
	else
		memcpy(&address.six.sin6_addr, words, sizeof address.six.sin6_addr);
	return is_loopback(&address);
}

/* Whether a connection from outside waits at this port. No program has it, so it has no inode. */
static bool one_waits(const char *pid, const char *table, unsigned port)
{
	char path[300], local[33], *rest = NULL;
	snprintf(path, sizeof path, "/proc/%s/net/%s", pid, table);
	char *text = read_file(path, NULL);
	bool found = false;
	for (char *line = text ? strtok_r(text, "\n", &rest) : NULL; line && !found; line = strtok_r(NULL, "\n", &rest)) {
		unsigned at, state;
		unsigned long inode;
		found = sscanf(line, " %*d: %32[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %*s %*s %lu", local, &at, &state,
			       &inode) == 4 && at == port && !inode &&
			(state == STATE_ESTABLISHED || state == STATE_CLOSE_WAIT) && !is_loopback_text(local);
	}
	free(text);
	return found;
}

/* All that wait here, in their order: also those of the machine with itself, as no other way leads to the next one. The kit's own
 * servers are not frozen and may be faster, so it must not wait. */
static void end_waiting(int fd)
{
	const struct linger at_once = {.l_onoff = 1};
	int flags = fcntl(fd, F_GETFL), accepted;
	fcntl(fd, F_SETFL, flags | O_NONBLOCK);
	while ((accepted = accept4(fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		setsockopt(accepted, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
		close(accepted);
	}
	fcntl(fd, F_SETFL, flags);
}

static unsigned port_of(const union address *address)
{
	return ntohs(address->any.sa_family == AF_INET ? address->four.sin_port : address->six.sin6_port);
}

/* In this state the kernel says in `tcpi_unacked` how many wait. */
static bool some_wait(const char *pid, const union address *local, const struct tcp_info *info)
{
	return info->tcpi_state == STATE_LISTENS && info->tcpi_unacked && !is_loopback(local) &&
	       (one_waits(pid, "tcp", port_of(local)) || one_waits(pid, "tcp6", port_of(local)));
}

static bool end_connections(const char *pid, int fd)
{
	const struct sockaddr nothing = {.sa_family = AF_UNSPEC};
	union address local;
	struct tcp_info info;
	socklen_t size = sizeof local, info_size = sizeof info;
	if (getsockname(fd, &local.any, &size) || (local.any.sa_family != AF_INET && local.any.sa_family != AF_INET6) ||
	    getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &info_size))
		return true;
	if (some_wait(pid, &local, &info))
		end_waiting(fd);
	bool connection = info.tcpi_state != STATE_LISTENS && info.tcpi_state != STATE_CLOSED && !is_loopback(&local);
	return !connection || !connect(fd, &nothing, sizeof nothing);
}

static bool abort_socket(const char *pid, int process, int number)
{
	int fd = (int)syscall(SYS_pidfd_getfd, process, number, 0);
	if (fd < 0)
		return errno == EBADF || errno == ESRCH; /* closed since, or its process has ended */
	bool aborted = end_connections(pid, fd);
	int failure = errno;
	close(fd);
	errno = failure;
	return aborted;
}

static bool is_socket(int folder, const char *name)
{
	char target[16] = "";
	return readlinkat(folder, name, target, sizeof target - 1) > 0 && !strncmp(target, "socket:[", 8);
}

static bool abort_of_process(const char *pid)
{
	char path[300];
	snprintf(path, sizeof path, "/proc/%s/fd", pid);
	DIR *links = opendir(path);
	int process = links ? (int)syscall(SYS_pidfd_open, atoi(pid), 0) : -1;
	struct dirent *entry;
	bool done = true;
	while (process >= 0 && done && (entry = readdir(links)))
		if (is_socket(dirfd(links), entry->d_name))
			done = abort_socket(pid, process, atoi(entry->d_name));
	int failure = errno;
	if (process >= 0)
		close(process);
	if (links)
		closedir(links);
	errno = failure;
	return done;
}

bool abort_connections(void)
{
	DIR *processes = opendir("/proc");
	struct dirent *entry;
	bool done = processes;
	while (done && (entry = readdir(processes)))
		if (atoi(entry->d_name) > 1)
			done = abort_of_process(entry->d_name);
	int failure = errno;
	if (processes)
		closedir(processes);
	errno = failure;
	return done;
}
