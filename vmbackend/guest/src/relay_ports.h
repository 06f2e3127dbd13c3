#ifndef RELAY_PORTS_H
#define RELAY_PORTS_H

#include <netinet/in.h>
#include <stddef.h>

#define MAX_LOCAL_PORTS 256

/* A port on which programs listen on loopback only, and where. */
struct local_port {
	unsigned port;
	in_addr_t address; /* IPv4; INADDR_ANY: on ::1 alone */
};

size_t find_local_ports(in_addr_t own, struct local_port *found); /* MAX_LOCAL_PORTS of them at most */

#endif
