/* The wait of a boot template, and what a machine that is loaded from one does before it goes on.
 *
 * A template is saved while it waits here: nothing of an image, a network or an account is in it. Each machine that is loaded
 * from it finds a message of the kind `boot` (message.c) on the requests port before its processors go on.
 */
#define _GNU_SOURCE
#include "guest.h"
#include "message.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READ_SIZE 4096
#define PORT_WAIT_MS 10000
#define DISK_WAIT_MS 5000

static int requests = -1;

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
static void receive_message(void)
{
	char data[READ_SIZE];
	struct pollfd source = {.fd = requests, .events = POLLIN};
	while (message_state() == MESSAGE_NONE || message_state() == MESSAGE_PART) {
		ssize_t got = poll(&source, 1, -1) > 0 ? read(requests, data, sizeof data) : -1;
		if (got > 0)
			message_take(data, (size_t)got);
		else
			sleep_ms(1);
	}
	explicit_bzero(data, sizeof data);
}

/* The kernel knows the size of the template's disk until it has handled the change. */
static bool take_disk(void)
{
	long long until = now_ms() + DISK_WAIT_MS;
	const char *bytes = message_get("disk_bytes");
	while (bytes && disk_bytes("data") != atoll(bytes)) {
		errno = ETIMEDOUT;
		if (now_ms() > until)
			return false;
		sleep_ms(1);
	}
	return bytes;
}

/* The random pool first: all that is random from here on is this machine's alone, the boot id as well. The device has the MAC
 * address of the template: the new one is set before the link is up. */
void await_load(void)
{
	static const struct item ITEMS[] = {
		{"entropy", take_entropy}, {"clock", take_clock}, {"mac", take_mac},
		{"disk", take_disk}, {"uuid", take_uuid}, {"configuration", take_configuration},
		{"generation", take_generation},
	};
	open_port();
	send_event("waiting\n");
	receive_message();
	if (message_state() != MESSAGE_WHOLE || message_kind() != MESSAGE_BOOT) {
		dprintf(requests, "failed message\n");
		boot_fail("cannot be loaded from a template: not a message");
	}
	if (!message_take_items(requests, "loaded", ITEMS, sizeof ITEMS / sizeof *ITEMS))
		boot_fail("cannot be loaded from a template");
	message_end();
	close(requests);
}
