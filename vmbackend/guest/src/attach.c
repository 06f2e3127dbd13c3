/* `guest attach`: hands its standard input and output to the hold, which it starts where there is none. */
#define _GNU_SOURCE
#include "guest.h"
#include "hold_protocol.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 16

static int connect_hold(const struct sockaddr_un *address)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && !connect(fd, (const struct sockaddr *)address, sizeof *address))
		return fd;
	close(fd);
	return -1;
}

/* In a session of its own; what it inherits of the connection's server it must not keep open. */
static void exec_hold(int listener, char **options)
{
	char number[16];
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	snprintf(number, sizeof number, "%d", listener);
	char *argv[] = {"guest", "hold", number, options[0], options[1], NULL};
	setsid();
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		dup2(null, fd);
	execv("/proc/self/exe", argv);
	_exit(EXIT_NOT_FOUND);
}

/* It listens before it starts, so that nothing waits for its start. */
static void start_hold(const struct sockaddr_un *address, char **options)
{
	int listener = socket(AF_UNIX, SOCK_STREAM, 0);
	unlink(address->sun_path);
	if (listener < 0 || bind(listener, (const struct sockaddr *)address, sizeof *address) || listen(listener, BACKLOG))
		die(EXIT_CANNOT_RUN, "cannot listen: %s", strerror(errno));
	pid_t child = fork();
	if (!child)
		exec_hold(listener, options);
	if (child < 0)
		die(EXIT_CANNOT_RUN, "cannot fork: %s", strerror(errno));
	close(listener);
}

/* Only one process starts it; the lock ends with the holder, or here. */
static int connect_or_start(const char *folder, char **options)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char lock[sizeof address.sun_path];
	int size = snprintf(address.sun_path, sizeof address.sun_path, "%s/" SOCKET_NAME, folder);
	if (size >= (int)sizeof address.sun_path)
		die(EXIT_CANNOT_RUN, "the folder's name is too long");
	int fd = connect_hold(&address);
	if (fd >= 0)
		return fd;
	mkdir(folder, 0700);
	snprintf(lock, sizeof lock, "%s/lock", folder);
	int held = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (held < 0 || flock(held, LOCK_EX))
		die(EXIT_CANNOT_RUN, "cannot lock %s: %s", folder, strerror(errno));
	fd = connect_hold(&address);
	if (fd < 0) {
		start_hold(&address, options);
		fd = connect_hold(&address);
	}
	close(held);
	return fd;
}

static bool send_descriptors(int fd)
{
	int descriptors[2] = {STDIN_FILENO, STDOUT_FILENO};
	char space[CMSG_SPACE(sizeof descriptors)] = {0};
	struct iovec data = {"", 1};
	struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	*header = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof descriptors)};
	memcpy(CMSG_DATA(header), descriptors, sizeof descriptors);
	return sendmsg(fd, &message, MSG_NOSIGNAL) == 1;
}

int attach_main(char **argv)
{
	char byte;
	int fd = connect_or_start(argv[0], argv + 1);
	if (fd < 0 || !send_descriptors(fd))
		die(EXIT_CANNOT_RUN, "cannot reach the hold: %s", strerror(errno));
	close(STDIN_FILENO);
	close(STDOUT_FILENO);
	while (read(fd, &byte, 1) < 0 && errno == EINTR)
		;
	return 0;
}
