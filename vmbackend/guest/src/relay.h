/* Reaching programs that listen on the guest's loopback only; see relay.c. */
#ifndef RELAY_H
#define RELAY_H

#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

#define MAX_LOCAL_PORTS 256
#define MAX_LINKS 1024     /* connections at a time; more wait */
#define MAX_PORT_LINKS 256 /* of them to one port; more are refused, as those that wait would be in front of all others */
#define LINK_SOURCES (2 * MAX_LINKS)

/* A port on which programs listen on loopback only, and where. */
struct local_port {
	unsigned port;
	in_addr_t address; /* IPv4; INADDR_ANY: on ::1 alone */
};

/* relay_ports.c */
size_t find_local_ports(in_addr_t own, struct local_port *found); /* MAX_LOCAL_PORTS of them at most */
/* relay_steer.c */
bool steer_open(in_addr_t own, int listener); /* false with errno */
void steer_port(unsigned port, bool steered); /* new connections from outside to OWN:PORT become those of the listener */
/* relay_links.c */
void link_open(int client, const struct local_port *target); /* takes CLIENT, reset where nothing answers or the port has its most */
bool links_full(void);
size_t links_poll(struct pollfd *sources); /* LINK_SOURCES at most */
void links_serve(const struct pollfd *sources, size_t count);

#endif
