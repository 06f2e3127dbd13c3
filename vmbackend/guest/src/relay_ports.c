/* The ports on which something listens on loopback, and nothing where connections from outside would find it. */
#include "relay_ports.h"

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define LISTEN 0x0a
#define MAX_LISTENERS 4096 /* looked at; sockets that listen come first in the kernel's tables */

static const struct in6_addr MAPPED = {.s6_addr = {[10] = 0xff, [11] = 0xff}}; /* ::ffff:0:0 */

/* Addresses are words in the kernel's own byte order. False after the last one that listens. */
static bool read_listener(FILE *table, struct in6_addr *address, bool *six, unsigned *port)
{
	char line[512], text[33];
	unsigned state;
	if (!fgets(line, sizeof line, table) || sscanf(line, " %*d: %32[0-9A-F]:%x %*[0-9A-F]:%*x %x", text, port, &state) != 3 ||
	    state != LISTEN)
		return false;
	uint32_t words[4] = {0};
	*six = strlen(text) == 32;
	for (size_t i = 0; i < (*six ? 4 : 1); i++)
		sscanf(text + 8 * i, "%8x", words + i);
	memcpy(address, words, sizeof *address);
	return true;
}

/* The IPv4 address of a socket of either family; false for a plain IPv6 one. */
static bool is_ipv4(const struct in6_addr *address, bool six, in_addr_t *found)
{
	memcpy(found, (const char *)address + (six ? 12 : 0), sizeof *found);
	return !six || !memcmp(address, &MAPPED, 12);
}

struct scan {
	in_addr_t own;
	struct local_port *found;
	size_t count;
	unsigned char open[65536 / 8]; /* ports that are reached without help */
};

static void add_local(struct scan *scan, unsigned port, in_addr_t address)
{
	for (size_t i = 0; i < scan->count; i++)
		if (scan->found[i].port == port) {
			if (scan->found[i].address == INADDR_ANY)
				scan->found[i].address = address;
			return;
		}
	if (scan->count < MAX_LOCAL_PORTS)
		scan->found[scan->count++] = (struct local_port){.port = port, .address = address};
}

static void note(struct scan *scan, const struct in6_addr *address, bool six, unsigned port)
{
	in_addr_t four;
	bool is_four = is_ipv4(address, six, &four);
	if (is_four ? four == INADDR_ANY || four == scan->own : IN6_IS_ADDR_UNSPECIFIED(address))
		scan->open[port / 8] |= (unsigned char)(1 << port % 8);
	else if (is_four && ntohl(four) >> 24 == IN_LOOPBACKNET)
		add_local(scan, port, four);
	else if (!is_four && IN6_IS_ADDR_LOOPBACK(address))
		add_local(scan, port, INADDR_ANY);
}

static void read_table(struct scan *scan, const char *path)
{
	char head[512];
	struct in6_addr address;
	unsigned port;
	bool six;
	FILE *table = fopen(path, "re");
	if (!table)
		return;
	if (fgets(head, sizeof head, table))
		for (int left = MAX_LISTENERS; left > 0 && read_listener(table, &address, &six, &port); left--)
			note(scan, &address, six, port & 0xffff);
	fclose(table);
}

size_t find_local_ports(in_addr_t own, struct local_port *found)
{
	struct scan scan = {.own = own, .found = found};
	size_t kept = 0;
	read_table(&scan, "/proc/net/tcp");
	read_table(&scan, "/proc/net/tcp6");
	for (size_t i = 0; i < scan.count; i++)
		if (!(scan.open[found[i].port / 8] >> found[i].port % 8 & 1))
			found[kept++] = found[i];
	return kept;
}
