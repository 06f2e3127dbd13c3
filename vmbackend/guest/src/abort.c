/* The end of all TCP connections that a machine had before its memory was loaded: their other ends are another machine's.
 *
 * Small kernels cannot destroy sockets of others (INET_DIAG_DESTROY). So each socket is taken over from its process for a moment
 * and disconnected, upon which whoever reads or writes it gets an error at once. What listens goes on.
 */
#define _GNU_SOURCE
#include "guest.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STATE_CLOSED 7
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

static bool is_connection(int fd)
{
	union address local;
	struct tcp_info info;
	socklen_t size = sizeof local, info_size = sizeof info;
	if (getsockname(fd, &local.any, &size) || (local.any.sa_family != AF_INET && local.any.sa_family != AF_INET6) ||
	    is_loopback(&local) || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &info_size))
		return false;
	return info.tcpi_state != STATE_LISTENS && info.tcpi_state != STATE_CLOSED;
}

static bool abort_socket(int process, int number)
{
	const struct sockaddr nothing = {.sa_family = AF_UNSPEC};
	int fd = (int)syscall(SYS_pidfd_getfd, process, number, 0);
	if (fd < 0)
		return errno == EBADF || errno == ESRCH; /* closed since, or its process has ended */
	bool aborted = !is_connection(fd) || !connect(fd, &nothing, sizeof nothing);
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
			done = abort_socket(process, atoi(entry->d_name));
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
