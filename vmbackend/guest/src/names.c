/* What a machine's configuration says about who it is: keys, names and addresses, in the files that programs read. */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAMES_SIZE 4096

static bool write_host_key(void)
{
	const char *hex = config_get("host_key");
	size_t size = strlen(hex) / 2;
	char *key = malloc(size + 1);
	for (size_t i = 0; key && i < size; i++) {
		unsigned byte = 0;
		sscanf(hex + 2 * i, "%2x", &byte);
		key[i] = (char)byte;
	}
	bool written = key && write_file(HOST_KEY, key, size, 0600);
	free(key);
	return written;
}

bool write_keys(void)
{
	char *line;
	int length = asprintf(&line, "%s\n", config_get("authorized_key"));
	if (length < 0)
		return false;
	bool written = write_host_key() && write_file(KIT "/home/.ssh/authorized_keys", line, (size_t)length, 0600);
	free(line);
	return written;
}

bool write_ssh_keys(void)
{
	char *lines = NULL;
	size_t size = 0, position = 0;
	const char *line;
	FILE *text = open_memstream(&lines, &size);
	while (text && (line = config_next("ssh_key", &position)))
		fprintf(text, "%s\n", line);
	bool written = text && !fclose(text) && write_user_keys(lines, size);
	free(lines);
	return written;
}

static bool write_resolver(void)
{
	char text[NAMES_SIZE] = "";
	size_t position = 0;
	const char *server;
	int used = 0;
	while ((server = config_next("dns", &position)) && used < NAMES_SIZE - 100)
		used += snprintf(text + used, sizeof text - (size_t)used, "nameserver %.64s\n", server);
	return write_file("/etc/resolv.conf", text, strlen(text), 0644);
}

/* In the present root. What can be written is, whatever fails. */
bool write_names(void)
{
	char text[NAMES_SIZE], address[64];
	const char *host = config_get("hostname");
	bool resolver = write_resolver();
	snprintf(address, sizeof address, "%s", config_get("address"));
	address[strcspn(address, "/")] = 0;
	snprintf(text, sizeof text, "127.0.0.1 localhost\n::1 localhost ip6-localhost\n%s %.255s\n", address, host);
	bool hosts = write_file("/etc/hosts", text, strlen(text), 0644);
	snprintf(text, sizeof text, "%.255s\n", host);
	bool name = write_file("/etc/hostname", text, strlen(text), 0644);
	return !sethostname(host, strlen(host)) && resolver && hosts && name;
}

/* The mounts of the user are not in the way there: they are of another namespace than the kit's. */
bool within_root(bool (*work)(void))
{
	int initramfs = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (initramfs < 0 || chdir(NEWROOT) || chroot("."))
		return false;
	bool done = work();
	int failure = errno;
	if (fchdir(initramfs) || chroot("."))
		boot_fail("cannot leave the machine's root: %s", strerror(errno));
	close(initramfs);
	errno = failure;
	return done;
}
