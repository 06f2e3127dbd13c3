/* The machine's configuration, from a file of QEMU's firmware device. */
#define _GNU_SOURCE
#include "guest.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/io.h>
#include <unistd.h>

#define FW_CFG "/sys/firmware/qemu_fw_cfg/by_name/opt/org.microvm.workspace/config/"
#define SELECT_PORT 0x510 /* fixed for PCs; the data port follows */
#define SYSFS_READ_SIZE 4096

static unsigned long number_of(const char *path)
{
	char *text = read_file(path, NULL);
	unsigned long number = text ? strtoul(text, NULL, 10) : 0;
	free(text);
	return number;
}

static bool read_by_port(char *data, size_t size)
{
	unsigned long key = number_of(FW_CFG "key");
	if (!key || ioperm(SELECT_PORT, 2, 1))
		return false;
	outw((unsigned short)key, SELECT_PORT);
	insb(SELECT_PORT + 1, data, size);
	ioperm(SELECT_PORT, 2, 0);
	return true;
}

/* Quadratic: for each page the kernel rereads everything before it, byte by byte. */
static bool read_by_sysfs(char *data, size_t size)
{
	int fd = open(FW_CFG "raw", O_RDONLY | O_CLOEXEC);
	size_t used = 0;
	ssize_t got = 0;
	while (used < size && (got = read(fd, data + used, size - used)) > 0)
		used += (size_t)got;
	close(fd);
	return used == size;
}

char *read_fw_cfg(size_t *size)
{
	*size = number_of(FW_CFG "size");
	char *data = *size && *size <= CONFIG_MAX ? malloc(*size) : NULL;
	if (!data)
		return NULL;
	/* A locked-down kernel refuses port access; then a large configuration takes seconds. */
	if ((*size > SYSFS_READ_SIZE && read_by_port(data, *size)) || read_by_sysfs(data, *size))
		return data;
	free(data);
	return NULL;
}
