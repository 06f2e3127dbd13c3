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

static void put_address(struct sockaddr *target, in_addr_t address)
{
	struct sockaddr_in value = {.sin_family = AF_INET, .sin_addr.s_addr = address};
	memcpy(target, &value, sizeof value);
}

static in_addr_t parse_address(const char *text)
{
	struct in_addr address;
	if (inet_pton(AF_INET, text, &address) != 1)
		boot_fail("not an address in the configuration: %s", text);
	return address.s_addr;
}

static void link_up(int fd, const char *name)
{
	struct ifreq request = {0};
	snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
	if (ioctl(fd, SIOCGIFFLAGS, &request))
		boot_fail("no network device %s", name);
	request.ifr_flags |= IFF_UP;
	if (ioctl(fd, SIOCSIFFLAGS, &request))
		boot_fail("cannot bring %s up: %s", name, strerror(errno));
}

static void set_address(int fd, const char *name, in_addr_t address, int prefix)
{
	struct ifreq request = {0};
	snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
	put_address(&request.ifr_addr, address);
	if (ioctl(fd, SIOCSIFADDR, &request))
		boot_fail("cannot set the address of %s: %s", name, strerror(errno));
	put_address(&request.ifr_netmask, htonl(prefix ? 0xffffffffu << (32 - prefix) : 0));
	if (ioctl(fd, SIOCSIFNETMASK, &request))
		boot_fail("cannot set the netmask of %s: %s", name, strerror(errno));
}

static void set_gateway(int fd, in_addr_t gateway)
{
	struct rtentry route = {.rt_flags = RTF_UP | RTF_GATEWAY};
	put_address(&route.rt_dst, INADDR_ANY);
	put_address(&route.rt_genmask, INADDR_ANY);
	put_address(&route.rt_gateway, gateway);
	if (ioctl(fd, SIOCADDRT, &route))
		boot_fail("cannot set the gateway: %s", strerror(errno));
}

/* While the link is down. */
bool set_mac(const char *text)
{
	struct ifreq request = {.ifr_name = "eth0", .ifr_hwaddr.sa_family = ARPHRD_ETHER};
	unsigned char *mac = (unsigned char *)request.ifr_hwaddr.sa_data;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	errno = EPROTO;
	bool set = fd >= 0 &&
		   sscanf(text, "%2hhx:%2hhx:%2hhx:%2hhx:%2hhx:%2hhx", mac, mac + 1, mac + 2, mac + 3, mac + 4, mac + 5) == 6 &&
		   !ioctl(fd, SIOCSIFHWADDR, &request);
	int failure = errno;
	close(fd);
	errno = failure;
	return set;
}

void configure_network(void)
{
	char address[64];
	snprintf(address, sizeof address, "%s", config_get("address"));
	char *slash = strchr(address, '/');
	int prefix = slash ? atoi(slash + 1) : -1;
	if (prefix < 0 || prefix > 32)
		boot_fail("the configuration's address has no prefix: %s", address);
	*slash = 0;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		boot_fail("no network in this kernel: %s", strerror(errno));
	link_up(fd, "lo");
	set_address(fd, "eth0", parse_address(address), prefix);
	link_up(fd, "eth0");
	set_gateway(fd, parse_address(config_get("gateway")));
	close(fd);
}
