#define _GNU_SOURCE
#include "guest.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#define DISK_WAIT_MS 10000
#define DISK_POLL_MS 5
#define SECTOR 512LL /* of the sizes in /sys, whatever the disk has */
#define REDIRECT_MAX "3000" /* bytes of the former path of a renamed folder; it must fit into a block of the disk */

static bool has_serial(const char *disk, const char *serial)
{
	char path[512];
	snprintf(path, sizeof path, "/sys/block/%s/serial", disk);
	char *text = read_file(path, NULL);
	if (!text)
		return false;
	text[strcspn(text, "\n")] = 0;
	bool same = !strcmp(text, serial);
	free(text);
	return same;
}

/* The kernel's name of the disk with this serial. */
static bool find_disk(const char *serial, char *name, size_t size)
{
	DIR *disks = opendir("/sys/block");
	struct dirent *entry;
	bool found = false;
	while (disks && !found && (entry = readdir(disks))) {
		found = has_serial(entry->d_name, serial);
		snprintf(name, size, "%s", entry->d_name);
	}
	if (disks)
		closedir(disks);
	return found;
}

long long disk_bytes(const char *serial)
{
	char name[256], path[300];
	if (!find_disk(serial, name, sizeof name))
		return -1;
	snprintf(path, sizeof path, "/sys/block/%s/size", name);
	char *text = read_file(path, NULL);
	long long bytes = text ? atoll(text) * SECTOR : -1;
	free(text);
	return bytes;
}

static void mount_disk(const char *serial, const char *target, const char *type, unsigned long flags)
{
	char name[256], device[300];
	long long until = now_ms() + DISK_WAIT_MS;
	while (!find_disk(serial, name, sizeof name) || make_node("/sys/block", name, S_IFBLK)) {
		if (now_ms() > until)
			boot_fail("no disk with the serial '%s'", serial);
		sleep_ms(DISK_POLL_MS);
	}
	snprintf(device, sizeof device, "/dev/%s", name);
	if (mount(device, target, type, flags, NULL))
		boot_fail("cannot mount the disk '%s' (%s): %s", serial, type, strerror(errno));
}

/* Folders of the image can be renamed (redirect_dir), and a file keeps its inode number when it is first written (xino).
 * An index, which would keep the hard links of the image, ties the writable disk to the inode numbers of one conversion of
 * the image: after another one the machine would not start. */
static void mount_overlay(void)
{
	write_value("/sys/module/overlay/parameters/redirect_max", REDIRECT_MAX);
	if (mount("overlay", NEWROOT, "overlay", MS_NOATIME,
		  "lowerdir=/base,upperdir=" KIT "/data/upper,workdir=" KIT "/data/work,redirect_dir=on,xino=on"))
		boot_fail("cannot mount the overlay of the disks: %s", strerror(errno));
}

void mount_disks(void)
{
	mkdir("/base", 0755);
	mkdir(NEWROOT, 0755);
	mkdir(KIT "/data", 0700);
	mount_disk("base", "/base", "squashfs", MS_RDONLY);
	mount_disk("data", KIT "/data", "ext4", MS_NOATIME);
	chmod(KIT "/data", 0700); /* the layers of the overlay are hidden from the guest's ordinary users */
	mark_running();
	if (!ensure_dir(KIT "/data/upper", 0755) || !ensure_dir(KIT "/data/work", 0700))
		boot_fail("cannot prepare the writable disk: %s", strerror(errno));
	mount_overlay();
}
