/* The baseline of benchmarks/watch.py: one read of inotify after another, the names of new files, a line each. */
#include <stdio.h>
#include <sys/inotify.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	static char buffer[65536] __attribute__((aligned(8)));
	int fd = inotify_init1(IN_CLOEXEC);
	for (int i = 1; i < argc; i++)
		if (inotify_add_watch(fd, argv[i], IN_CREATE) < 0)
			return 1;
	puts("ready");
	fflush(stdout);
	for (ssize_t got; (got = read(fd, buffer, sizeof buffer)) > 0; fflush(stdout)) {
		for (ssize_t at = 0; at < got;) {
			const struct inotify_event *event = (const void *)(buffer + at);
			at += (ssize_t)sizeof *event + event->len;
			puts(event->mask & IN_Q_OVERFLOW ? "overflow" : event->name);
		}
	}
	return 0;
}
