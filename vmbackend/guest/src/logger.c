/* Logs inside the machine: output of the main program and the workloads, each in a file of bounded size.
 *
 * Each line is a record in the format of CRI, the container runtime interface of Kubernetes:
 *
 *     2026-01-31T12:00:00.000000000Z stdout F text
 *
 * with the time at which this process read the line's end, its stream, and F for a whole line or P for a part: the next
 * record of that stream continues it. A log at a path of its owner's choice has the output as it is, without records.
 *
 * svlogd is not used: it needs a directory of its own, stops reading when it cannot write, and on SIGTERM leaves what
 * the pipe still holds unread. A workload's log is a plain file at a path of its owner's choice, no state of that file may
 * block the workload, and the last output before a power-off must not be lost.
 */
#define _GNU_SOURCE
#include "guest.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOG_DIR "/var/log/workspace"
#define LINE_BYTES 8192  /* of text; a longer line becomes several records */
#define PREFIX_BYTES 48
#define PART_MS 1000     /* an incomplete line (a prompt) becomes a record after so long without output */

struct stream {
	const char *name;
	char text[LINE_BYTES];
	size_t used;
	long long changed;
};

static char block[65536], records[65536];
static size_t records_used;

static void flush_records(struct log_file *log)
{
	if (records_used)
		log_append(log, records, records_used);
	records_used = 0;
}

static void write_record(struct log_file *log, const char *now, const char *name, bool whole, const char *text, size_t size)
{
	if (records_used + size + PREFIX_BYTES > sizeof records)
		flush_records(log);
	records_used += (size_t)snprintf(records + records_used, PREFIX_BYTES, "%s %s %c ", now, name, whole ? 'F' : 'P');
	memcpy(records + records_used, text, size);
	records_used += size;
	records[records_used++] = '\n';
}

static void stamp(char *now, size_t size)
{
	struct timespec time;
	struct tm parts;
	clock_gettime(CLOCK_REALTIME, &time);
	gmtime_r(&time.tv_sec, &parts);
	size_t used = strftime(now, size, "%Y-%m-%dT%H:%M:%S", &parts);
	snprintf(now + used, size - used, ".%09ldZ", time.tv_nsec);
}

/* The length of a part that ends with a whole UTF-8 character, where the text is UTF-8. */
static size_t whole_characters(const char *text, size_t size)
{
	for (size_t back = 1; back <= 4 && back < size; back++) {
		unsigned char byte = (unsigned char)text[size - back];
		if (byte >= 0xC0)
			return back < (byte < 0xE0 ? 2U : byte < 0xF0 ? 3U : 4U) ? size - back : size;
		if (byte < 0x80)
			break;
	}
	return size;
}

static void write_part(struct log_file *log, const char *now, struct stream *from)
{
	size_t size = whole_characters(from->text, from->used);
	write_record(log, now, from->name, false, from->text, size);
	from->used -= size;
	memmove(from->text, from->text + size, from->used);
}

static void write_lines(struct log_file *log, const char *now, struct stream *from, const char *data, size_t size)
{
	while (size) {
		const char *end = memchr(data, '\n', size);
		size_t length = end ? (size_t)(end - data) : size;
		if (length > LINE_BYTES - from->used)
			length = LINE_BYTES - from->used;
		memcpy(from->text + from->used, data, length);
		from->used += length;
		data += length;
		size -= length;
		if (size && *data == '\n') {
			write_record(log, now, from->name, true, from->text, from->used);
			from->used = 0;
			data++;
			size--;
		} else if (from->used == LINE_BYTES) {
			write_part(log, now, from);
		}
	}
}

/* Reads once and writes; false at the end of the stream. */
static bool copy_output(struct log_file *log, int fd, struct stream *from)
{
	char now[PREFIX_BYTES];
	ssize_t got = read(fd, block, sizeof block);
	if (got <= 0)
		return false;
	if (!log->stamped) {
		log_append(log, block, (size_t)got);
		return true;
	}
	stamp(now, sizeof now);
	write_lines(log, now, from, block, (size_t)got);
	flush_records(log);
	from->changed = now_ms();
	return true;
}

static void write_rest(struct log_file *log, struct stream *from)
{
	char now[PREFIX_BYTES];
	if (!from->used)
		return;
	stamp(now, sizeof now);
	write_record(log, now, from->name, false, from->text, from->used);
	from->used = 0;
	flush_records(log);
}

/* Milliseconds until the incomplete line is written, or -1. */
static int wait_for_rest(struct log_file *log, struct stream *from)
{
	if (!from->used)
		return -1;
	long long wait = from->changed + PART_MS - now_ms();
	if (wait > 0)
		return (int)wait;
	write_rest(log, from);
	return -1;
}

/* Until the end of the output. Errors have a named pipe, which this process holds open, too: it ends with the output, and
 * a program whose logger restarts gets no broken pipe. */
static void write_logs(struct log_file *log, int errors)
{
	static struct stream out = {.name = "stdout"}, err = {.name = "stderr"};
	struct pollfd sources[] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = errors, .events = POLLIN}};
	for (bool open = true; open;) {
		int wait = shorter_wait(wait_for_rest(log, &out), wait_for_rest(log, &err));
		if (poll(sources, 2, wait) <= 0)
			continue;
		if (sources[0].revents)
			open = copy_output(log, STDIN_FILENO, &out);
		if (sources[1].revents)
			copy_output(log, errors, &err);
	}
	while (errors >= 0 && copy_output(log, errors, &err))
		;
	write_rest(log, &out);
	write_rest(log, &err);
}

static const char *log_path(const char *name)
{
	static char made[sizeof LOG_DIR + SERVICE_NAME_SIZE + 8];
	snprintf(made, sizeof made, LOG_DIR "/%s.log", name);
	return workload_get(name, "log", made);
}

static int run_logger(const char *path, bool stamped)
{
	struct log_file log = {.path = path, .fd = -1, .stamped = stamped};
	int errors = -1;
	set_oom("0");
	/* On power-off the pipe still holds the last output; the logger exits at the end of its input. */
	signal(SIGTERM, SIG_IGN);
	if (stamped) {
		mkfifo(LOG_ERRORS, 0600);
		errors = open(LOG_ERRORS, O_RDWR | O_NONBLOCK | O_CLOEXEC);
		fchmod(errors, 0666); /* a program without root may open its /dev/stderr */
	}
	write_file(LOG_READING, "", 0, 0600);
	enter_guest();
	write_logs(&log, errors);
	return 0;
}

int log_main(void)
{
	return run_logger(LOG_DIR "/cmd.log", true);
}

int workload_log_main(void)
{
	const char *name = workload_name(true);
	config_load(CONFIG_FILE);
	return run_logger(log_path(name), !*workload_get(name, "log", ""));
}

void remove_logs(void)
{
	char name[LOG_NAME_SIZE];
	struct stat info;
	size_t position = 0;
	const char *workload;
	empty_folder(LOG_DIR);
	while ((workload = config_next("workload", &position)))
		for (int age = 0; age <= OLD_LOGS; age++) {
			log_name(log_path(workload), age, name);
			if (!lstat(name, &info) && S_ISREG(info.st_mode))
				unlink(name);
		}
}
