#ifndef RELAY_LINKS_H
#define RELAY_LINKS_H

#include <stdbool.h>
#include <stddef.h>

#define MAX_LINKS 1024     /* connections at a time; more wait */
#define MAX_PORT_LINKS 256 /* of them to one port; more are refused, as those that wait would be in front of all others */
#define LINK_SOURCES (2 * MAX_LINKS)

struct local_port;
struct pollfd;

void link_open(int client, const struct local_port *target); /* takes CLIENT, reset where nothing answers or the port has its most */
bool links_full(void);
size_t links_poll(struct pollfd *sources); /* LINK_SOURCES at most */
void links_serve(const struct pollfd *sources, size_t count);

#endif
