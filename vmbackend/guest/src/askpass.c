/* `askpass QUESTION`, as git and OpenSSH run it: asks the host (ask.c), prints what it says. Nothing is kept. */
#define _GNU_SOURCE
#include "guest.h"

#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define QUESTION 240 /* of the numbers of the agent protocol that are left to private use */
#define MAX_TEXT 4096

static bool read_all(int fd, char *data, size_t size)
{
	while (size) {
		ssize_t got = read(fd, data, size);
		if (got <= 0)
			return false;
		data += got;
		size -= (size_t)got;
	}
	return true;
}

static int connect_socket(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (!path || strlen(path) >= sizeof address.sun_path)
		return -1;
	strcpy(address.sun_path, path);
	return connect(fd, (struct sockaddr *)&address, sizeof address) ? -1 : fd;
}

static bool send_question(int fd, const char *question)
{
	static char frame[5 + MAX_TEXT] = {[4] = (char)QUESTION};
	size_t size = strnlen(question, MAX_TEXT);
	uint32_t length = htonl((uint32_t)size + 1);
	memcpy(frame, &length, sizeof length);
	memcpy(frame + 5, question, size);
	return send(fd, frame, size + 5, MSG_NOSIGNAL) == (ssize_t)size + 5;
}

int askpass_main(const char *question)
{
	static char text[MAX_TEXT + 2];
	char type;
	uint32_t length;
	int fd = connect_socket(getenv("SSH_AUTH_SOCK"));
	if (fd < 0 || !send_question(fd, question) || !read_all(fd, (char *)&length, sizeof length))
		return 1;
	size_t size = ntohl(length) - 1;
	if (!length || size > MAX_TEXT || !read_all(fd, &type, 1) || (unsigned char)type != QUESTION || !read_all(fd, text, size))
		return 1;
	text[size] = '\n';
	bool done = write(STDOUT_FILENO, text, size + 1) == (ssize_t)size + 1;
	explicit_bzero(text, sizeof text);
	return !done;
}
