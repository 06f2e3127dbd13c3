/* The program at the kernel's lookup of sockets (BPF_PROG_TYPE_SK_LOOKUP), which is asked before those that listen.
 *
 * The C library has no declarations for it; those here are of linux/bpf.h. The program and its tables live as long as the
 * descriptors of this process.
 */
#define _GNU_SOURCE
#include "relay_steer.h"

#include "relay_ports.h"

#include <fcntl.h>
#include <net/if.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MAP_CREATE = 0, MAP_UPDATE = 2, MAP_DELETE = 3, PROG_LOAD = 5, LINK_CREATE = 28 };
enum { HASH_MAP = 1, SOCKET_MAP = 15, LOOKUP_PROGRAM = 30, LOOKUP_ATTACH = 36 };
enum { CALL_MAP_LOOKUP = 1, CALL_RELEASE = 86, CALL_ASSIGN = 124 };
enum { FAMILY = 8, PROTOCOL = 12, LOCAL_ADDRESS = 40, LOCAL_PORT = 60, INTERFACE = 64 }; /* in struct bpf_sk_lookup */
enum { KEY = -4 }; /* on the stack */
enum { R0, R1, R2, R3, R6 = 6, R7 = 7, R10 = 10 };

struct instruction {
	uint8_t code;
	uint8_t to : 4, from : 4;
	int16_t offset;
	int32_t value;
};

#define LOAD(register_, place) {0x61, register_, R6, place, 0}
#define COPY(register_, other) {0xbf, register_, other, 0, 0}
#define SET(register_, number) {0xb7, register_, 0, 0, number}
#define CALL(function) {0x85, 0, 0, 0, function}
#define IF_NOT(register_, number, skip) {0x56, register_, 0, skip, number} /* 32 bits */
#define IF_ZERO(register_, skip) {0x15, register_, 0, skip, 0}
#define STORE_KEY(register_) {0x63, R10, register_, KEY, 0}
#define STORE_KEY_ZERO {0x62, R10, 0, KEY, 0}
#define MAP(descriptor) {0x18, R1, 1, 0, descriptor}, {0, 0, 0, 0, 0}
#define KEY_ADDRESS COPY(R2, R10), {0x07, R2, 0, 0, KEY}
#define EXIT {0x95, 0, 0, 0, 0}

static int port_map = -1;

static long bpf(int command, void *attributes, size_t size)
{
	return syscall(SYS_bpf, command, attributes, size);
}

static int create_map(uint32_t type, uint32_t entries)
{
	struct {
		uint32_t type, key_size, value_size, entries, flags;
	} attributes = {.type = type, .key_size = 4, .value_size = 4, .entries = entries};
	return (int)bpf(MAP_CREATE, &attributes, sizeof attributes);
}

/* VALUE is NULL where there is none: fields that a command does not have must be zero. */
static long change_map(int command, int map, uint32_t key, const uint32_t *value)
{
	struct {
		uint32_t map, unused;
		uint64_t key, value, flags;
	} attributes = {.map = (uint32_t)map, .key = (uintptr_t)&key, .value = (uintptr_t)value};
	return bpf(command, &attributes, sizeof attributes);
}

/* New TCP connections that come in from the network to OWN and a port of the table get the socket; all others pass: every
 * skip leads to SET(R0, 1). MAP is two instructions. */
static int load_program(in_addr_t own, int interface, int sockets)
{
	const struct instruction program[] = {
		COPY(R6, R1),
		LOAD(R2, PROTOCOL),      IF_NOT(R2, IPPROTO_TCP, 28),
		LOAD(R2, FAMILY),        IF_NOT(R2, AF_INET, 26),
		LOAD(R2, LOCAL_ADDRESS), IF_NOT(R2, (int32_t)own, 24),
		LOAD(R2, INTERFACE),     IF_NOT(R2, interface, 22),
		LOAD(R2, LOCAL_PORT),    STORE_KEY(R2),
		KEY_ADDRESS, MAP(port_map), CALL(CALL_MAP_LOOKUP),
		IF_ZERO(R0, 14),
		STORE_KEY_ZERO,
		KEY_ADDRESS, MAP(sockets), CALL(CALL_MAP_LOOKUP),
		IF_ZERO(R0, 7),
		COPY(R7, R0), COPY(R1, R6), COPY(R2, R7),
		SET(R3, 0), CALL(CALL_ASSIGN),
		COPY(R1, R7), CALL(CALL_RELEASE),
		SET(R0, 1), EXIT,
	};
	struct {
		uint32_t type, count;
		uint64_t instructions, license;
		uint32_t log_level, log_size;
		uint64_t log;
		uint32_t version, flags;
		char name[16];
		uint32_t interface, attach_type;
	} attributes = {.type = LOOKUP_PROGRAM, .count = sizeof program / sizeof *program,
			.instructions = (uintptr_t)program, .license = (uintptr_t) "GPL", .attach_type = LOOKUP_ATTACH};
	return (int)bpf(PROG_LOAD, &attributes, sizeof attributes);
}

static bool attach(int program)
{
	struct {
		uint32_t program, target, type, flags;
	} attributes = {.program = (uint32_t)program, .type = LOOKUP_ATTACH};
	int network = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	attributes.target = (uint32_t)network;
	return network >= 0 && bpf(LINK_CREATE, &attributes, sizeof attributes) >= 0;
}

bool steer_open(in_addr_t own, int listener)
{
	int sockets = create_map(SOCKET_MAP, 1);
	uint32_t socket = (uint32_t)listener;
	port_map = create_map(HASH_MAP, MAX_LOCAL_PORTS);
	if (sockets < 0 || port_map < 0 || change_map(MAP_UPDATE, sockets, 0, &socket))
		return false;
	int program = load_program(own, (int)if_nametoindex("eth0"), sockets);
	return program >= 0 && attach(program);
}

void steer_port(unsigned port, bool steered)
{
	const uint32_t present = 1;
	change_map(steered ? MAP_UPDATE : MAP_DELETE, port_map, port, steered ? &present : NULL);
}
