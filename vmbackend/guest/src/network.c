#define _GNU_SOURCE
#include "guest.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <net/route.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define DEVICE "eth0"

static void put_address(struct sockaddr *target, in_addr_t address)
{
	struct sockaddr_in value = {.sin_family = AF_INET, .sin_addr.s_addr = address};
	memcpy(target, &value, sizeof value);
}

static bool parse_address(const char *text, in_addr_t *address)
{
	errno = EINVAL;
	return inet_pton(AF_INET, text, address) == 1;
}

static bool switch_link(int fd, const char *name, bool up)
{
	struct ifreq request = {0};
	snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
	if (ioctl(fd, SIOCGIFFLAGS, &request))
		return false;
	request.ifr_flags = (short)(up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP);
	return !ioctl(fd, SIOCSIFFLAGS, &request);
}

static bool set_address(int fd, in_addr_t address, int prefix)
{
	struct ifreq request = {.ifr_name = DEVICE};
	put_address(&request.ifr_addr, address);
	if (ioctl(fd, SIOCSIFADDR, &request))
		return false;
	put_address(&request.ifr_netmask, htonl(prefix ? 0xffffffffu << (32 - prefix) : 0));
	return !ioctl(fd, SIOCSIFNETMASK, &request);
}

static bool set_gateway(int fd, in_addr_t gateway)
{
	struct rtentry route = {.rt_flags = RTF_UP | RTF_GATEWAY};
	put_address(&route.rt_dst, INADDR_ANY);
	put_address(&route.rt_genmask, INADDR_ANY);
	put_address(&route.rt_gateway, gateway);
	return !ioctl(fd, SIOCADDRT, &route) || errno == EEXIST;
}

static bool set_all(int fd)
{
	char text[64];
	in_addr_t address, gateway;
	snprintf(text, sizeof text, "%s", config_get("address"));
	char *slash = strchr(text, '/');
	int prefix = slash ? atoi(slash + 1) : -1;
	errno = EINVAL;
	if (prefix < 0 || prefix > 32)
		return false;
	*slash = 0;
	return parse_address(text, &address) && parse_address(config_get("gateway"), &gateway) && switch_link(fd, "lo", true) &&
	       set_address(fd, address, prefix) && switch_link(fd, DEVICE, true) && set_gateway(fd, gateway);
}

static bool with_socket(bool (*work)(int fd))
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool done = fd >= 0 && work(fd);
	int failure = errno;
	if (fd >= 0)
		close(fd);
	errno = failure;
	return done;
}

/* The kernel gives the device another IPv6 address of its own with a new MAC address, as it comes up. */
bool configure_network(void)
{
	return with_socket(set_all);
}

static bool take_down(int fd)
{
	return switch_link(fd, DEVICE, false);
}

/* Forgets routes and neighbours, and the IPv6 address. */
bool disable_network(void)
{
	return with_socket(take_down);
}

static unsigned char new_mac[6];

static bool change_mac(int fd)
{
	struct ifreq request = {.ifr_name = DEVICE, .ifr_hwaddr.sa_family = ARPHRD_ETHER};
	memcpy(request.ifr_hwaddr.sa_data, new_mac, sizeof new_mac);
	return !ioctl(fd, SIOCSIFHWADDR, &request);
}

/* While the link is down. */
bool set_mac(const char *text)
{
	unsigned char *mac = new_mac;
	errno = EPROTO;
	return sscanf(text, "%2hhx:%2hhx:%2hhx:%2hhx:%2hhx:%2hhx", mac, mac + 1, mac + 2, mac + 3, mac + 4, mac + 5) == 6 &&
	       with_socket(change_mac);
}
