/* The relay's connections outside of a machine: for each port of ARGV what comes to 127.0.0.2 goes to the program on 127.0.0.1. */
#define _GNU_SOURCE
#include "relay_links.h"
#include "relay_ports.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#define MAX_PORTS 4

static int listen_at(unsigned port)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((in_port_t)port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	address.sin_addr.s_addr = inet_addr("127.0.0.2");
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 1024))
		exit(1);
	return fd;
}

int main(int argc, char **argv)
{
	static struct pollfd sources[MAX_PORTS + LINK_SOURCES];
	static struct local_port ports[MAX_PORTS];
	nfds_t listeners = (nfds_t)argc - 1;
	if (listeners > MAX_PORTS)
		return 1;
	for (nfds_t i = 0; i < listeners; i++) {
		ports[i] = (struct local_port){.port = (unsigned)atoi(argv[i + 1]), .address = htonl(INADDR_LOOPBACK)};
		sources[i] = (struct pollfd){.fd = listen_at(ports[i].port)};
	}
	puts("up");
	fflush(stdout);
	for (;;) {
		for (nfds_t i = 0; i < listeners; i++)
			sources[i].events = links_full() ? 0 : POLLIN;
		size_t count = links_poll(sources + listeners);
		poll(sources, listeners + count, -1);
		links_serve(sources + listeners, count);
		for (nfds_t i = 0; i < listeners; i++) {
			int client = sources[i].revents ? accept4(sources[i].fd, NULL, NULL, SOCK_NONBLOCK) : -1;
			if (client >= 0)
				link_open(client, ports + i);
		}
	}
}
