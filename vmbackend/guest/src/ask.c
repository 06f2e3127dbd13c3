/* `guest run --ask FOLDER`: what the command's programs ask for goes to the host, over this program's own input and output.
 *
 * They ask over a Unix socket in a folder of its own, which SSH_AUTH_SOCK names, by frames of the protocol of SSH agents: a
 * number of 4 bytes and as many bytes. An SSH client asks for keys and signatures there, `askpass` for a password by type 240.
 * The host gets and sends a number of 4 bytes, that of the question and the bytes. No bytes are a refusal.
 */
#define _GNU_SOURCE
#include "guest.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define MAX_BODY 8192 /* with ASK_PROGRAMS less than a pipe holds, so that a question never blocks */
#define NUMBER 4
#define SOCKET_VARIABLE "SSH_AUTH_SOCK"
#define FOLDER_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
#define SOCKET "s"
#define ATTEMPTS 10

struct asker {
	int fd; /* 0: none */
	uint32_t question; /* 0: none was passed on */
	size_t used;
	unsigned char data[NUMBER + MAX_BODY];
};

static struct asker askers[ASK_PROGRAMS];
static struct {
	size_t used;
	unsigned char data[2 * NUMBER + MAX_BODY];
} answer;
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static int listener = -1, group;
static int lock = -1; /* of the folder, which is in use as long as it is locked */
static bool host_gone;

static uint32_t number_at(const unsigned char *data)
{
	uint32_t number;
	memcpy(&number, data, sizeof number);
	return ntohl(number);
}

static void put_number(unsigned char *data, uint32_t number)
{
	number = htonl(number);
	memcpy(data, &number, sizeof number);
}

static bool write_all(int fd, const unsigned char *data, size_t size)
{
	while (size) {
		ssize_t done = write(fd, data, size);
		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return false;
		data += done;
		size -= (size_t)done;
	}
	return true;
}

/* Until USED has reached WANTED: more is not taken. False at the end. */
static bool read_more(int fd, unsigned char *data, size_t *used, size_t wanted)
{
	ssize_t got = read(fd, data + *used, wanted - *used);
	if (got > 0)
		*used += (size_t)got;
	return got > 0 || (got < 0 && (errno == EINTR || errno == EAGAIN));
}

/* Those of processes that were killed: nothing but them locks a folder, and its lock ends with them. */
static void remove_former(const char *folder)
{
	struct dirent *entry;
	DIR *entries = opendir(folder);
	while (entries && (entry = readdir(entries))) {
		int former = is_ask_folder(entry->d_name) ? openat(dirfd(entries), entry->d_name, FOLDER_FLAGS) : -1;
		if (former < 0)
			continue;
		if (!flock(former, LOCK_EX | LOCK_NB)) {
			unlinkat(former, SOCKET, 0);
			unlinkat(dirfd(entries), entry->d_name, AT_REMOVEDIR);
		}
		close(former);
	}
	if (entries)
		closedir(entries);
}

static bool make_named(const char *folder)
{
	uint64_t name;
	if (getrandom(&name, sizeof name, 0) != sizeof name)
		return false;
	int size = snprintf(address.sun_path, sizeof address.sun_path, "%s/" ASK_PREFIX "%016" PRIx64, folder, name);
	if (size + sizeof "/" SOCKET <= sizeof address.sun_path)
		return !mkdir(address.sun_path, 0700);
	errno = ENAMETOOLONG;
	return false;
}

/* Another process may remove it before it is locked: then it is made again. */
static bool make_folder(const char *folder)
{
	struct stat info;
	for (int left = ATTEMPTS; left > 0; left--) {
		if (!make_named(folder))
			break;
		lock = open(address.sun_path, FOLDER_FLAGS);
		if (lock >= 0 && !flock(lock, LOCK_EX | LOCK_NB) && !fstat(lock, &info) && info.st_nlink) {
			strcat(address.sun_path, "/" SOCKET);
			return true;
		}
		if (lock >= 0)
			close(lock);
	}
	*address.sun_path = 0;
	return false;
}

void ask_open(const char *folder)
{
	remove_former(folder);
	if (!make_folder(folder))
		die(EXIT_CANNOT_RUN, "cannot make a folder in %s: %s", folder, strerror(errno));
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, ASK_PROGRAMS)) {
		int error = errno;
		ask_close();
		die(EXIT_CANNOT_RUN, "cannot listen: %s", strerror(error));
	}
	setenv(SOCKET_VARIABLE, address.sun_path, 1);
}

void ask_close(void)
{
	if (!*address.sun_path)
		return;
	unlink(address.sun_path);
	*strrchr(address.sun_path, '/') = 0;
	rmdir(address.sun_path);
	*address.sun_path = 0;
}

/* The command reads nothing and says everything on its standard error: both others are the host's. */
void ask_detach(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
		die(EXIT_CANNOT_RUN, "cannot redirect the command: %s", strerror(errno));
}

/* Of the parent, once the command is started in CGROUP. */
void ask_start(int cgroup)
{
	group = cgroup;
	signal(SIGPIPE, SIG_IGN); /* an asker, or the host, that is gone must not end this process before the command */
}

static void end_asker(struct asker *asker)
{
	close(asker->fd);
	*asker = (struct asker){0};
}

/* Only the command's own programs are answered. Where the kernel has no cgroups the folder's mode is all there is. */
static bool is_own(int fd)
{
	struct ucred peer;
	socklen_t size = sizeof peer;
	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) && (group < 0 || cgroup_has(group, peer.pid));
}

static void accept_asker(void)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	for (size_t i = 0; fd >= 0 && i < ASK_PROGRAMS && is_own(fd); i++)
		if (!askers[i].fd) {
			askers[i].fd = fd;
			return;
		}
	if (fd >= 0)
		close(fd);
}

static void pass_question(struct asker *asker, size_t size)
{
	static uint32_t last;
	unsigned char head[2 * NUMBER];
	asker->question = ++last;
	put_number(head, (uint32_t)(NUMBER + size));
	put_number(head + NUMBER, asker->question);
	if (!write_all(STDOUT_FILENO, head, sizeof head) || !write_all(STDOUT_FILENO, asker->data + NUMBER, size))
		host_gone = true;
	asker->used = 0;
}

static void read_question(struct asker *asker)
{
	size_t size = asker->used < NUMBER ? 0 : number_at(asker->data);
	if (asker->question || !read_more(asker->fd, asker->data, &asker->used, NUMBER + size)) {
		end_asker(asker); /* it left, or says more than it was asked */
		return;
	}
	if (asker->used < NUMBER)
		return;
	size = number_at(asker->data);
	if (!size || size > MAX_BODY)
		end_asker(asker);
	else if (asker->used == NUMBER + size)
		pass_question(asker, size);
}

static void pass_answer(size_t size)
{
	uint32_t question = number_at(answer.data + NUMBER);
	for (size_t i = 0; i < ASK_PROGRAMS; i++) {
		struct asker *asker = askers + i;
		if (!asker->fd || !question || asker->question != question)
			continue;
		asker->question = 0;
		put_number(answer.data + NUMBER, (uint32_t)size); /* in front of the bytes, as the asker expects them */
		if (!size || !write_all(asker->fd, answer.data + NUMBER, NUMBER + size))
			end_asker(asker);
	}
	explicit_bzero(&answer, sizeof answer);
}

static void read_answer(void)
{
	size_t size = answer.used < NUMBER ? NUMBER : number_at(answer.data);
	if (!read_more(STDIN_FILENO, answer.data, &answer.used, NUMBER + size)) {
		host_gone = true;
		return;
	}
	if (answer.used < NUMBER)
		return;
	size = number_at(answer.data);
	if (size < NUMBER || size > NUMBER + MAX_BODY)
		host_gone = true;
	else if (answer.used == NUMBER + size)
		pass_answer(size - NUMBER);
}

size_t ask_sources(struct pollfd *sources)
{
	if (listener < 0 || host_gone)
		return 0;
	sources[0] = (struct pollfd){.fd = listener, .events = POLLIN};
	sources[1] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
	for (size_t i = 0; i < ASK_PROGRAMS; i++)
		sources[2 + i] = (struct pollfd){.fd = askers[i].fd ? askers[i].fd : -1, .events = POLLIN};
	return ASK_SOURCES;
}

void ask_handle(const struct pollfd *sources)
{
	for (size_t i = 0; i < ASK_PROGRAMS; i++)
		if (sources[2 + i].fd >= 0 && sources[2 + i].revents)
			read_question(askers + i);
	if (sources[1].revents)
		read_answer();
	if (sources[0].revents)
		accept_asker();
	for (size_t i = 0; host_gone && i < ASK_PROGRAMS; i++)
		if (askers[i].fd)
			end_asker(askers + i);
}
