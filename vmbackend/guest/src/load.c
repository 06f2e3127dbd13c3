/* The wait of a boot template, and what a machine that is loaded from one is told before it goes on.
 *
 * A template is saved while it waits here: nothing of an image, a network or an account is in it. Each machine that is loaded
 * from it finds a message on the requests port before its processors go on:
 *
 *     "MVMLOAD\n", then four numbers of 32 bits, little-endian: version, kind, bytes of the records, bytes of the
 *     configuration; then both, as in config.c
 *
 * and answers with one line that names each item: `loaded GENERATION clock entropy mac disk configuration NOW`. The host lets
 * packets pass only after it; a machine that fails or does not answer is destroyed.
 */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAGIC "MVMLOAD\n"
#define VERSION 1
#define KIND_BOOT 1
#define RECORDS_MAX 4096
#define SECOND 1000000000LL
#define PORT_WAIT_MS 10000
#define DISK_WAIT_MS 5000

struct head {
	char magic[8];
	uint32_t version, kind, records, configuration;
};

static int requests = -1;
static char uuid[40];

static void fail(const char *item) __attribute__((noreturn));

static void fail(const char *item)
{
	dprintf(requests, "failed %s %s\n", item, strerror(errno));
	boot_fail("cannot be loaded from a template: %s: %s", item, strerror(errno));
}

/* The port appears some milliseconds after its driver. */
static void open_port(void)
{
	long long until = now_ms() + PORT_WAIT_MS;
	while ((requests = open_requests()) < 0) {
		if (now_ms() > until)
			boot_fail("no port for requests of the host");
		sleep_ms(1);
	}
}

/* The port has no bytes while the template is saved: the first ones are those of the machine that was loaded. */
static void receive(void *data, size_t size)
{
	struct pollfd source = {.fd = requests, .events = POLLIN};
	for (size_t used = 0; used < size;) {
		ssize_t got = poll(&source, 1, -1) > 0 ? read(requests, (char *)data + used, size - used) : -1;
		if (got > 0)
			used += (size_t)got;
		else
			sleep_ms(1);
	}
}

static void receive_message(char *records, struct head *head)
{
	receive(head, sizeof *head);
	errno = EPROTO;
	if (memcmp(head->magic, MAGIC, sizeof head->magic) || head->version != VERSION || head->kind != KIND_BOOT ||
	    !head->records || head->records > RECORDS_MAX || !head->configuration || head->configuration > CONFIG_MAX)
		fail("message");
	receive(records, head->records);
	char *configuration = malloc(head->configuration);
	if (!configuration)
		fail("message");
	receive(configuration, head->configuration);
	errno = EPROTO;
	if (records[head->records - 1] || !write_file(CONFIG_FILE, configuration, head->configuration, 0600) ||
	    !config_load(CONFIG_FILE))
		fail("configuration");
	free(configuration);
}

static const char *record(const char *records, size_t size, const char *key)
{
	size_t length = strlen(key);
	for (size_t at = 0; at < size; at += strlen(records + at) + 1)
		if (!strncmp(records + at, key, length) && records[at + length] == '=')
			return records + at + length + 1;
	errno = EPROTO;
	fail(key);
}

static void set_clock(const char *text)
{
	long long nanoseconds = atoll(text);
	struct timespec time = {.tv_sec = nanoseconds / SECOND, .tv_nsec = nanoseconds % SECOND};
	if (clock_settime(CLOCK_REALTIME, &time))
		fail("clock");
}

/* The device has the address of the template: this one is the machine's, before the link is up. */
static void set_mac(const char *text)
{
	struct ifreq request = {.ifr_name = "eth0", .ifr_hwaddr.sa_family = ARPHRD_ETHER};
	unsigned char *mac = (unsigned char *)request.ifr_hwaddr.sa_data;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	errno = EPROTO;
	if (sscanf(text, "%2hhx:%2hhx:%2hhx:%2hhx:%2hhx:%2hhx", mac, mac + 1, mac + 2, mac + 3, mac + 4, mac + 5) != 6 ||
	    fd < 0 || ioctl(fd, SIOCSIFHWADDR, &request))
		fail("mac");
	close(fd);
}

/* The kernel knows the size of the template's disk until it has handled the change. */
static void await_disk(const char *bytes)
{
	long long until = now_ms() + DISK_WAIT_MS;
	while (disk_bytes("data") != atoll(bytes)) {
		errno = ETIMEDOUT;
		if (now_ms() > until)
			fail("disk");
		sleep_ms(1);
	}
}

static void answer(const char *generation)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	dprintf(requests, "loaded %s clock entropy mac disk configuration %lld\n", generation, now.tv_sec * SECOND + now.tv_nsec);
}

const char *loaded_uuid(void)
{
	return uuid;
}

void await_load(void)
{
	char records[RECORDS_MAX];
	struct head head;
	open_port();
	send_event("waiting\n");
	receive_message(records, &head);
	/* The random pool first: all that is random from here on is this machine's alone, the boot id as well. */
	if (!reseed_random(record(records, head.records, "entropy")))
		fail("entropy");
	set_clock(record(records, head.records, "clock"));
	set_mac(record(records, head.records, "mac"));
	await_disk(record(records, head.records, "disk_bytes"));
	snprintf(uuid, sizeof uuid, "%s", record(records, head.records, "uuid"));
	const char *generation = record(records, head.records, "generation");
	write_generation(generation);
	answer(generation);
	explicit_bzero(records, sizeof records);
	close(requests);
}
